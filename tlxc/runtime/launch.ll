; The native part of a launch, compiled once a process: see native.py and launcher.py.
;
; Both launchers are CPython functions whose `self` holds what is known beforehand.  Addresses of Python objects stand in
; plans as plain words; whoever makes a plan keeps the objects alive.  Plans and arguments are read while the
; interpreter's lock is held; code that other threads may run in between (a torch function mode, a stream's getter) finds
; everything it could release still owned by somebody.

%Kernel = type { ptr, ptr, i32, i32, i32, i32 }  ; function, context, threads of a CTA, dynamic shared bytes, launch attributes, 0
%Config = type { i32, i32, i32, i32, i32, i32, i32, i32, ptr, ptr, i32, i32 }  ; CUlaunchConfig
%Shape = type { i64, i64, i64, i64, ptr, ptr, i64, ptr, ptr, [3 x i64], i64, i64, i64 }
; arguments by position, by name; checks; parameters, the last of which is the stream where nothing gets it; stream
; getter (or null), its argument, the device's ordinal;
; result, what raises for a status; cluster; workspace bytes a CTA, its parameter; tensor maps
%Check = type { ptr, ptr, ptr }  ; look(where) must be this object
%Entry = type { i64, ptr, ptr, ptr, i64, i64, i64, i64, i64, i64 }
; kind, keyword (or null), class, token; low, high, mask, whether value & mask is zero; parameter (or -1); offset of a %Map
%Param = type { i64, ptr }  ; a word, or where the value stands
%Map = type { ptr, i64, i64, i64, [5 x i64], [6 x i32], i32, i32, i32, i32 }
; padding; CUtensorMapDataType, bytes of an element, rank; block, box (fastest first); swizzle, L2 promotion, fill, stored

@limits = private constant [3 x i64] [i64 2147483647, i64 65535, i64 65535]
@ones = private constant [5 x i32] [i32 1, i32 1, i32 1, i32 1, i32 1]
; CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 1
@attributes = private constant { i32, i32, i32, [60 x i8] } { i32 6, i32 0, i32 1, [60 x i8] zeroinitializer }, align 8
@other = private constant i8 0  ; its address: the arguments are not those of the plan
@data_ptr = external global i8
@dtype = external global i8
@get_device = external global i8
@base = external global i8
@shape = external global i8
@stride = external global i8
@strides = external global i8
@block_shape = external global i8
@padding = external global i8

declare ptr @PyBytes_AsString(ptr)
declare i32 @PyErr_BadArgument()
declare void @PyErr_Clear()
declare ptr @PyErr_Occurred()
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i64 @PyLong_AsLongLong(ptr)
declare i64 @PyLong_AsUnsignedLongLong(ptr)
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyObject_Call(ptr, ptr, ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare ptr @PyObject_VectorcallMethod(ptr, ptr, i64, ptr)
declare i64 @PySequence_Size(ptr)
declare ptr @PySequence_GetItem(ptr, i64)
declare ptr @PyDict_New()
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare ptr @PyTuple_New(i64)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare void @Py_DecRef(ptr)
declare void @Py_IncRef(ptr)
declare i32 @cuCtxGetCurrent(ptr)
declare i32 @cuCtxPushCurrent_v2(ptr)
declare i32 @cuCtxPopCurrent_v2(ptr)
declare i32 @cuLaunchKernelEx(ptr, ptr, ptr, ptr)
declare i32 @cuMemAllocAsync(ptr, i64, ptr)
declare i32 @cuMemFreeAsync(i64, ptr)
declare i32 @cuTensorMapEncodeTiled(ptr, i32, i32, ptr, ptr, ptr, ptr, ptr, i32, i32, i32, i32)

; -- both launchers ---------------------------------------------------------------------------------------------------

; Whether `grid` is a tuple of one to three integers from 1 to the limits; then they stand in the configuration.
define internal i1 @read_grid(ptr %grid, ptr %config) {
  %y = getelementptr i32, ptr %config, i64 1
  %z = getelementptr i32, ptr %config, i64 2
  store i32 1, ptr %y
  store i32 1, ptr %z
  %axes = call i64 @PyTuple_Size(ptr %grid)
  %less = sub i64 %axes, 1
  %some = icmp ult i64 %less, 3
  br i1 %some, label %axis, label %wrong
axis:
  %i = phi i64 [ 0, %0 ], [ %i.next, %right ]
  %object = call ptr @PyTuple_GetItem(ptr %grid, i64 %i)
  %size = call i64 @PyLong_AsLongLong(ptr %object)
  %size.less = sub i64 %size, 1
  %limit.at = getelementptr i64, ptr @limits, i64 %i
  %limit = load i64, ptr %limit.at
  %within = icmp ult i64 %size.less, %limit
  br i1 %within, label %right, label %wrong
right:
  %size.at = getelementptr i32, ptr %config, i64 %i
  %narrow = trunc i64 %size to i32
  store i32 %narrow, ptr %size.at
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %axes
  br i1 %more, label %axis, label %done
done:
  ret i1 true
wrong:
  ret i1 false
}

; Puts the kernel into the stream and returns the driver's status.  A current context other than the kernel's is put
; aside for the call: handles mean nothing in another context.
define internal i32 @submit(ptr %kernel, ptr %config, ptr %stream, ptr %params) {
  %k = load %Kernel, ptr %kernel
  %function = extractvalue %Kernel %k, 0
  %context = extractvalue %Kernel %k, 1
  %threads = extractvalue %Kernel %k, 2
  %shared = extractvalue %Kernel %k, 3
  %attributes = extractvalue %Kernel %k, 4
  %x = getelementptr %Config, ptr %config, i32 0, i32 3
  %y = getelementptr %Config, ptr %config, i32 0, i32 4
  %z = getelementptr %Config, ptr %config, i32 0, i32 5
  %shared.at = getelementptr %Config, ptr %config, i32 0, i32 6
  %stream.at = getelementptr %Config, ptr %config, i32 0, i32 8
  %list.at = getelementptr %Config, ptr %config, i32 0, i32 9
  %count.at = getelementptr %Config, ptr %config, i32 0, i32 10
  store i32 %threads, ptr %x
  store i32 1, ptr %y
  store i32 1, ptr %z
  store i32 %shared, ptr %shared.at
  store ptr %stream, ptr %stream.at
  %bare = icmp eq i32 %attributes, 0
  %list = select i1 %bare, ptr null, ptr @attributes
  store ptr %list, ptr %list.at
  store i32 %attributes, ptr %count.at
  %previous = alloca ptr
  %got = call i32 @cuCtxGetCurrent(ptr %previous)
  %current = load ptr, ptr %previous
  %home = icmp eq ptr %current, %context
  br i1 %home, label %direct, label %switch
direct:
  %status = call i32 @cuLaunchKernelEx(ptr %config, ptr %function, ptr %params, ptr null)
  ret i32 %status
switch:
  %pushed = call i32 @cuCtxPushCurrent_v2(ptr %context)
  %entered = icmp eq i32 %pushed, 0
  br i1 %entered, label %away, label %refused
away:
  %status.away = call i32 @cuLaunchKernelEx(ptr %config, ptr %function, ptr %params, ptr null)
  %popped = call i32 @cuCtxPopCurrent_v2(ptr %previous)
  ret i32 %status.away
refused:
  ret i32 %pushed
}

; A float as the bits of a 32-bit float.
define internal i64 @float_word(ptr %object) {
  %double = call double @PyFloat_AsDouble(ptr %object)
  %single = fptrunc double %double to float
  %bits = bitcast float %single to i32
  %word = zext i32 %bits to i64
  ret i64 %word
}

; -- launch(grid, stream, *values) ------------------------------------------------------------------------------------
; self: %Kernel, i64 number of values, a byte of kind for each.  Returns the status, or -1 for an unclear grid.

define ptr @launch(ptr %self, ptr %args, i64 %given) {
entry:
  %plan = call ptr @PyBytes_AsString(ptr %self)
  %count.at = getelementptr i8, ptr %plan, i64 32
  %count = load i64, ptr %count.at
  %kinds = getelementptr i8, ptr %plan, i64 40
  %config = alloca %Config, align 16
  %slots = alloca i64, i64 %count, align 16
  %params = alloca ptr, i64 %count, align 16
  %wanted = add i64 %count, 2
  %complete = icmp eq i64 %wanted, %given
  br i1 %complete, label %grid, label %miscounted
grid:
  %grid.object = load ptr, ptr %args
  %grid.clear = call i1 @read_grid(ptr %grid.object, ptr %config)
  br i1 %grid.clear, label %stream, label %unclear
stream:
  %stream.at = getelementptr ptr, ptr %args, i64 1
  %stream.object = load ptr, ptr %stream.at
  %handle = call i64 @PyLong_AsUnsignedLongLongMask(ptr %stream.object)
  %handle.error = call ptr @PyErr_Occurred()
  %handle.right = icmp eq ptr %handle.error, null
  br i1 %handle.right, label %next, label %failed
next:
  %i = phi i64 [ 0, %stream ], [ %i.next, %advance ]
  %passed = phi i64 [ 0, %stream ], [ %passed.next, %advance ]
  %last = icmp eq i64 %i, %count
  br i1 %last, label %submit, label %convert
convert:
  %position = add i64 %i, 2
  %object.at = getelementptr ptr, ptr %args, i64 %position
  %object = load ptr, ptr %object.at
  %slot = getelementptr i64, ptr %slots, i64 %passed
  %kind.at = getelementptr i8, ptr %kinds, i64 %i
  %kind = load i8, ptr %kind.at
  switch i8 %kind, label %integer [ i8 115, label %advance
                                    i8 102, label %float
                                    i8 109, label %integer ]
integer:
  %int = call i64 @PyLong_AsUnsignedLongLongMask(ptr %object)
  br label %put
float:
  %bits = call i64 @float_word(ptr %object)
  br label %put
put:
  %word = phi i64 [ %int, %integer ], [ %bits, %float ]
  store i64 %word, ptr %slot
  %map = inttoptr i64 %word to ptr
  %is.map = icmp eq i8 %kind, 109
  %value.at = select i1 %is.map, ptr %map, ptr %slot
  %param = getelementptr ptr, ptr %params, i64 %passed
  store ptr %value.at, ptr %param
  %passed.more = add i64 %passed, 1
  %error = call ptr @PyErr_Occurred()
  %clean = icmp eq ptr %error, null
  br i1 %clean, label %advance, label %failed
advance:
  %passed.next = phi i64 [ %passed, %convert ], [ %passed.more, %put ]
  %i.next = add i64 %i, 1
  br label %next
submit:
  %stream.handle = inttoptr i64 %handle to ptr
  %status = call i32 @submit(ptr %plan, ptr %config, ptr %stream.handle, ptr %params)
  br label %done
unclear:
  call void @PyErr_Clear()
  br label %done
done:
  %found = phi i32 [ %status, %submit ], [ -1, %unclear ]
  %wide = sext i32 %found to i64
  %result = call ptr @PyLong_FromLongLong(i64 %wide)
  ret ptr %result
miscounted:
  %argument.error = call i32 @PyErr_BadArgument()
  ret ptr null
failed:
  ret ptr null
}

; -- guarded(grid, *arguments, **arguments) ---------------------------------------------------------------------------
; self: a list of a function and of plans.  The first plan that fits the arguments launches; where none does, the
; function is called with them.

define ptr @guarded(ptr %self, ptr %args, i64 %given, ptr %names) {
entry:
  br label %next
next:
  %i = phi i64 [ 1, %entry ], [ %i.next, %after ]
  %count = call i64 @PyList_Size(ptr %self)
  %more = icmp ult i64 %i, %count
  br i1 %more, label %try, label %none
try:
  %plan = call ptr @PyList_GetItem(ptr %self, i64 %i)
  call void @Py_IncRef(ptr %plan)
  %result = call ptr @attempt(ptr %plan, ptr %args, i64 %given, ptr %names)
  call void @Py_DecRef(ptr %plan)
  %differs = icmp eq ptr %result, @other
  br i1 %differs, label %after, label %done
after:
  call void @PyErr_Clear()
  %i.next = add i64 %i, 1
  br label %next
done:
  ret ptr %result
none:
  %function = call ptr @PyList_GetItem(ptr %self, i64 0)
  %fallen = call ptr @pass_on(ptr %function, ptr %args, i64 %given, ptr %names)
  ret ptr %fallen
}

; function(*args, **names), for versions of Python that export no vectorcall of functions.
define internal ptr @pass_on(ptr %function, ptr %args, i64 %given, ptr %names) {
entry:
  %tuple = call ptr @PyTuple_New(i64 %given)
  %dict = call ptr @PyDict_New()
  br label %position
position:
  %i = phi i64 [ 0, %entry ], [ %i.next, %put ]
  %all = icmp eq i64 %i, %given
  br i1 %all, label %named, label %put
put:
  %value.at = getelementptr ptr, ptr %args, i64 %i
  %value = load ptr, ptr %value.at
  call void @Py_IncRef(ptr %value)
  %set = call i32 @PyTuple_SetItem(ptr %tuple, i64 %i, ptr %value)
  %i.next = add i64 %i, 1
  br label %position
named:
  %unnamed = icmp eq ptr %names, null
  br i1 %unnamed, label %call, label %counted
counted:
  %count = call i64 @PyTuple_Size(ptr %names)
  %first = getelementptr ptr, ptr %args, i64 %given
  br label %name
name:
  %n = phi i64 [ 0, %counted ], [ %n.next, %enter ]
  %every = icmp eq i64 %n, %count
  br i1 %every, label %call, label %enter
enter:
  %key = call ptr @PyTuple_GetItem(ptr %names, i64 %n)
  %entry.at = getelementptr ptr, ptr %first, i64 %n
  %entry.value = load ptr, ptr %entry.at
  %entered = call i32 @PyDict_SetItem(ptr %dict, ptr %key, ptr %entry.value)
  %n.next = add i64 %n, 1
  br label %name
call:
  %result = call ptr @PyObject_Call(ptr %function, ptr %tuple, ptr %dict)
  call void @Py_DecRef(ptr %tuple)
  call void @Py_DecRef(ptr %dict)
  ret ptr %result
}

; Launches by one plan: its result, null with an exception, or @other where the arguments are not those of the plan.
; plan: a tuple that starts with bytes: %Kernel, %Shape, checks, entries, parameters.
define internal ptr @attempt(ptr %tuple, ptr %args, i64 %given, ptr %names) {
entry:
  %bytes = call ptr @PyTuple_GetItem(ptr %tuple, i64 0)
  %plan = call ptr @PyBytes_AsString(ptr %bytes)
  %shape.at = getelementptr %Kernel, ptr %plan, i64 1
  %shape = load %Shape, ptr %shape.at
  %arguments = extractvalue %Shape %shape, 0
  %by.name = extractvalue %Shape %shape, 1
  %checks = extractvalue %Shape %shape, 2
  %count = extractvalue %Shape %shape, 3
  %getter = extractvalue %Shape %shape, 4
  %device = extractvalue %Shape %shape, 5
  %ordinal = extractvalue %Shape %shape, 6
  %compiled = extractvalue %Shape %shape, 7
  %refuse = extractvalue %Shape %shape, 8
  %per.cta = extractvalue %Shape %shape, 10
  %work.param = extractvalue %Shape %shape, 11
  %map.count = extractvalue %Shape %shape, 12
  %check.at = getelementptr %Shape, ptr %shape.at, i64 1
  %entry.at = getelementptr %Check, ptr %check.at, i64 %checks
  %all = add i64 %arguments, %by.name
  %param.at = getelementptr %Entry, ptr %entry.at, i64 %all
  %config = alloca %Config, align 16
  %slots = alloca i64, i64 %count, align 16
  %params = alloca ptr, i64 %count, align 16
  %map.bytes = mul i64 %map.count, 128
  %maps = alloca i8, i64 %map.bytes, align 64
  %work = alloca i64
  %seen = alloca ptr
  %wanted = add i64 %arguments, 1
  %right.count = icmp eq i64 %given, %wanted
  %right.names = call i1 @same_names(ptr %entry.at, i64 %arguments, i64 %by.name, ptr %names)
  %right.shape = and i1 %right.count, %right.names
  br i1 %right.shape, label %grid, label %mismatch
grid:
  %grid.object = load ptr, ptr %args
  %grid.clear = call i1 @read_grid(ptr %grid.object, ptr %config)
  br i1 %grid.clear, label %clusters, label %mismatch
clusters:
  %whole = call i1 @whole_clusters(ptr %config, ptr %shape.at)
  br i1 %whole, label %context, label %mismatch
context:
  ; Tensor maps are encoded, and workspaces allocated, in the kernel's context.
  %bound = or i64 %map.count, %per.cta
  %anywhere = icmp eq i64 %bound, 0
  br i1 %anywhere, label %check, label %at.home
at.home:
  %got = call i32 @cuCtxGetCurrent(ptr %seen)
  %current = load ptr, ptr %seen
  %kernel.context.at = getelementptr %Kernel, ptr %plan, i32 0, i32 1
  %kernel.context = load ptr, ptr %kernel.context.at
  %home = icmp eq ptr %current, %kernel.context
  br i1 %home, label %check, label %mismatch
check:
  %c = phi i64 [ 0, %context ], [ 0, %at.home ], [ %c.next, %looked ]
  %checked = icmp eq i64 %c, %checks
  br i1 %checked, label %fill, label %look
look:
  %this = getelementptr %Check, ptr %check.at, i64 %c
  %this.check = load %Check, ptr %this
  %look.function = extractvalue %Check %this.check, 0
  %where = extractvalue %Check %this.check, 1
  %constant = extractvalue %Check %this.check, 2
  %now = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %look.function, ptr %where, ptr null)
  %unchanged = icmp eq ptr %now, %constant
  %failed = icmp eq ptr %now, null
  br i1 %failed, label %mismatch, label %looked.up
looked.up:
  call void @Py_DecRef(ptr %now)
  br i1 %unchanged, label %looked, label %mismatch
looked:
  %c.next = add i64 %c, 1
  br label %check
fill:
  %p = phi i64 [ 0, %check ], [ %p.next, %filling ]
  %filled = icmp eq i64 %p, %count
  br i1 %filled, label %argument, label %filling
filling:
  %param.from = getelementptr %Param, ptr %param.at, i64 %p
  %param = load %Param, ptr %param.from
  %word = extractvalue %Param %param, 0
  %stands = extractvalue %Param %param, 1
  %slot = getelementptr i64, ptr %slots, i64 %p
  store i64 %word, ptr %slot
  %in.slot = icmp eq ptr %stands, null
  %value.at = select i1 %in.slot, ptr %slot, ptr %stands
  %param.to = getelementptr ptr, ptr %params, i64 %p
  store ptr %value.at, ptr %param.to
  %p.next = add i64 %p, 1
  br label %fill
argument:
  %a = phi i64 [ 0, %fill ], [ %a.next, %taken ]
  %m = phi i64 [ 0, %fill ], [ %m.next, %taken ]
  %last = icmp eq i64 %a, %all
  br i1 %last, label %stream, label %take
take:
  %a.next = add i64 %a, 1
  %object.at = getelementptr ptr, ptr %args, i64 %a.next
  %object = load ptr, ptr %object.at
  %this.entry = getelementptr %Entry, ptr %entry.at, i64 %a
  %map.offset = mul i64 %m, 128
  %map = getelementptr i8, ptr %maps, i64 %map.offset
  %fits = call i1 @take(ptr %plan, ptr %this.entry, ptr %object, i64 %ordinal, ptr %slots, ptr %params, ptr %map)
  %kind = load i64, ptr %this.entry
  %is.map = icmp uge i64 %kind, 4
  %one = zext i1 %is.map to i64
  %m.next = add i64 %m, %one
  br i1 %fits, label %taken, label %mismatch
taken:
  br label %argument
stream:
  %legacy = icmp eq ptr %getter, null
  br i1 %legacy, label %given.stream, label %get.stream
given.stream:
  %stream.index = sub i64 %count, 1
  %stream.slot = getelementptr i64, ptr %slots, i64 %stream.index
  %stream.given = load i64, ptr %stream.slot
  br label %work.begin
get.stream:
  %stream.object = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %getter, ptr %device, ptr null)
  %no.stream = icmp eq ptr %stream.object, null
  br i1 %no.stream, label %raised, label %read.stream
read.stream:
  %handle = call i64 @PyLong_AsUnsignedLongLongMask(ptr %stream.object)
  call void @Py_DecRef(ptr %stream.object)
  %handle.error = call ptr @PyErr_Occurred()
  %handle.right = icmp eq ptr %handle.error, null
  br i1 %handle.right, label %work.begin, label %raised
work.begin:
  %stream.word = phi i64 [ %stream.given, %given.stream ], [ %handle, %read.stream ]
  %stream.handle = inttoptr i64 %stream.word to ptr
  %workless = icmp eq i64 %per.cta, 0
  br i1 %workless, label %go, label %allocate
allocate:
  %x = load i32, ptr %config
  %y.at = getelementptr i32, ptr %config, i64 1
  %y = load i32, ptr %y.at
  %z.at = getelementptr i32, ptr %config, i64 2
  %z = load i32, ptr %z.at
  %x.wide = zext i32 %x to i64
  %y.wide = zext i32 %y to i64
  %z.wide = zext i32 %z to i64
  %xy = mul i64 %x.wide, %y.wide
  %ctas = mul i64 %xy, %z.wide
  %work.bytes = mul i64 %ctas, %per.cta
  %allocated = call i32 @cuMemAllocAsync(ptr %work, i64 %work.bytes, ptr %stream.handle)
  %has.work = icmp eq i32 %allocated, 0
  br i1 %has.work, label %pass.work, label %status
pass.work:
  %work.address = load i64, ptr %work
  %work.slot = getelementptr i64, ptr %slots, i64 %work.param
  store i64 %work.address, ptr %work.slot
  %launched.with = call i32 @submit(ptr %plan, ptr %config, ptr %stream.handle, ptr %params)
  %freed = call i32 @cuMemFreeAsync(i64 %work.address, ptr %stream.handle)
  %launched.right = icmp eq i32 %launched.with, 0
  %work.status = select i1 %launched.right, i32 %freed, i32 %launched.with
  br label %status
go:
  %launched = call i32 @submit(ptr %plan, ptr %config, ptr %stream.handle, ptr %params)
  br label %status
status:
  %found = phi i32 [ %launched, %go ], [ %work.status, %pass.work ], [ %allocated, %allocate ]
  %success = icmp eq i32 %found, 0
  br i1 %success, label %done, label %refused
done:
  call void @Py_IncRef(ptr %compiled)
  ret ptr %compiled
refused:
  %found.wide = zext i32 %found to i64
  %number = call ptr @PyLong_FromLongLong(i64 %found.wide)
  %never = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %refuse, ptr %number, ptr null)
  call void @Py_DecRef(ptr %number)
  ret ptr %never
raised:
  ret ptr null
mismatch:
  ret ptr @other
}

; Whether the keywords of a call are those of the entries, in their order.
define internal i1 @same_names(ptr %entries, i64 %first, i64 %wanted, ptr %names) {
entry:
  %unnamed = icmp eq ptr %names, null
  br i1 %unnamed, label %counted, label %count
count:
  %size = call i64 @PyTuple_Size(ptr %names)
  br label %counted
counted:
  %found = phi i64 [ 0, %entry ], [ %size, %count ]
  %same = icmp eq i64 %found, %wanted
  br i1 %same, label %next, label %differ
next:
  %i = phi i64 [ 0, %counted ], [ %i.next, %equal ]
  %all = icmp eq i64 %i, %wanted
  br i1 %all, label %agree, label %compare
compare:
  %position = add i64 %first, %i
  %keyword.at = getelementptr %Entry, ptr %entries, i64 %position, i32 1
  %keyword = load ptr, ptr %keyword.at
  %name = call ptr @PyTuple_GetItem(ptr %names, i64 %i)
  %identical = icmp eq ptr %name, %keyword
  br i1 %identical, label %equal, label %differ
equal:
  %i.next = add i64 %i, 1
  br label %next
agree:
  ret i1 true
differ:
  ret i1 false
}

define internal i1 @whole_clusters(ptr %config, ptr %shape) {
entry:
  %cluster = getelementptr %Shape, ptr %shape, i32 0, i32 9
  br label %axis
axis:
  %i = phi i64 [ 0, %entry ], [ %i.next, %axis ]
  %left.before = phi i32 [ 0, %entry ], [ %left, %axis ]
  %size.at = getelementptr i32, ptr %config, i64 %i
  %size = load i32, ptr %size.at
  %part.at = getelementptr i64, ptr %cluster, i64 %i
  %part.wide = load i64, ptr %part.at
  %part = trunc i64 %part.wide to i32
  %rest = urem i32 %size, %part
  %left = or i32 %left.before, %rest
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, 3
  br i1 %more, label %axis, label %done
done:
  %whole = icmp eq i32 %left, 0
  ret i1 %whole
}

; -- arguments: each `take` says whether the object is what the entry wants, and then puts its word where it belongs -----

define internal i1 @take(ptr %plan, ptr %entry, ptr %object, i64 %ordinal, ptr %slots, ptr %params, ptr %map) {
  %kind = load i64, ptr %entry
  %class.at = getelementptr %Entry, ptr %entry, i32 0, i32 2
  %class = load ptr, ptr %class.at
  %slot.index.at = getelementptr %Entry, ptr %entry, i32 0, i32 8
  %slot.index = load i64, ptr %slot.index.at
  %slot = getelementptr i64, ptr %slots, i64 %slot.index
  %of.at = getelementptr ptr, ptr %object, i64 1  ; ob_type
  %of = load ptr, ptr %of.at
  %right.class = icmp eq ptr %of, %class
  br i1 %right.class, label %choose, label %no
choose:
  switch i64 %kind, label %no [ i64 0, label %constant
                                i64 1, label %array
                                i64 2, label %integer
                                i64 3, label %float
                                i64 4, label %descriptor
                                i64 5, label %tensor ]
constant:
  %constant.fits = call i1 @take_constant(ptr %entry, ptr %object)
  ret i1 %constant.fits
array:
  %array.fits = call i1 @take_array(ptr %entry, ptr %object, i64 %ordinal, ptr %slot)
  ret i1 %array.fits
integer:
  %integer.fits = call i1 @take_integer(ptr %entry, ptr %object, ptr %slot)
  ret i1 %integer.fits
float:
  %bits = call i64 @float_word(ptr %object)
  store i64 %bits, ptr %slot
  ret i1 true
descriptor:
  %param = getelementptr ptr, ptr %params, i64 %slot.index
  store ptr %map, ptr %param
  %descriptor.fits = call i1 @take_descriptor(ptr %plan, ptr %entry, ptr %object, i64 %ordinal, ptr %map)
  ret i1 %descriptor.fits
tensor:
  %tensor.param = getelementptr ptr, ptr %params, i64 %slot.index
  store ptr %map, ptr %tensor.param
  %tensor.fits = call i1 @take_tensor(ptr %plan, ptr %entry, ptr %object, i64 %ordinal, ptr %map)
  ret i1 %tensor.fits
no:
  ret i1 false
}

define internal i1 @take_constant(ptr %entry, ptr %object) {
  %e = load %Entry, ptr %entry
  %token = extractvalue %Entry %e, 3
  %by.value = extractvalue %Entry %e, 7
  %same = icmp eq ptr %object, %token
  %only = icmp eq i64 %by.value, 0
  %decided = or i1 %same, %only
  br i1 %decided, label %done, label %compare
compare:
  %found = call i32 @PyObject_RichCompareBool(ptr %object, ptr %token, i32 2)
  %equal = icmp eq i32 %found, 1
  ret i1 %equal
done:
  ret i1 %same
}

define internal i1 @take_integer(ptr %entry, ptr %object, ptr %slot) {
  %e = load %Entry, ptr %entry
  %low = extractvalue %Entry %e, 4
  %high = extractvalue %Entry %e, 5
  %mask = extractvalue %Entry %e, 6
  %want = extractvalue %Entry %e, 7
  %index = extractvalue %Entry %e, 8
  %value = call i64 @PyLong_AsLongLong(ptr %object)
  %error = call ptr @PyErr_Occurred()
  %clean = icmp eq ptr %error, null
  %from = icmp sge i64 %value, %low
  %to = icmp sle i64 %value, %high
  %rest = and i64 %value, %mask
  %divisible = icmp eq i64 %rest, 0
  %divisible.wide = zext i1 %divisible to i64
  %as.wanted = icmp eq i64 %divisible.wide, %want
  ; 1 is a specialisation of its own: where it is passed, it has a mask that it does not satisfy, or low is 1.
  %one = icmp eq i64 %value, 1
  %masked = icmp ne i64 %mask, 0
  %special = and i1 %one, %masked
  %common = xor i1 %special, true
  %in.range = and i1 %from, %to
  %right = and i1 %in.range, %as.wanted
  %fits.clean = and i1 %right, %clean
  %fits = and i1 %fits.clean, %common
  %passed = icmp sge i64 %index, 0
  %put = and i1 %fits, %passed
  br i1 %put, label %store, label %done
store:
  store i64 %value, ptr %slot
  br label %done
done:
  ret i1 %fits
}

; The result of a method without arguments as an integer; what no integer is leaves an exception.
define internal i64 @ask(ptr %object, ptr %method) {
  %self = alloca ptr
  store ptr %object, ptr %self
  %result = call ptr @PyObject_VectorcallMethod(ptr %method, ptr %self, i64 1, ptr null)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %none, label %read
read:
  %value = call i64 @PyLong_AsUnsignedLongLongMask(ptr %result)
  call void @Py_DecRef(ptr %result)
  ret i64 %value
none:
  ret i64 0
}

; Whether an attribute is this very object.
define internal i1 @is(ptr %object, ptr %name, ptr %wanted) {
  %found = call ptr @PyObject_GetAttr(ptr %object, ptr %name)
  %absent = icmp eq ptr %found, null
  br i1 %absent, label %no, label %compare
compare:
  %same = icmp eq ptr %found, %wanted
  call void @Py_DecRef(ptr %found)
  ret i1 %same
no:
  ret i1 false
}

define internal i1 @take_array(ptr %entry, ptr %object, i64 %ordinal, ptr %slot) {
  %e = load %Entry, ptr %entry
  %dtype = extractvalue %Entry %e, 3
  %mask = extractvalue %Entry %e, 6
  %want = extractvalue %Entry %e, 7
  %right.dtype = call i1 @is(ptr %object, ptr @dtype, ptr %dtype)
  br i1 %right.dtype, label %address, label %no
address:
  %address.word = call i64 @ask(ptr %object, ptr @data_ptr)
  %device = call i64 @ask(ptr %object, ptr @get_device)
  %error = call ptr @PyErr_Occurred()
  %clean = icmp eq ptr %error, null
  %here = icmp eq i64 %device, %ordinal
  %rest = and i64 %address.word, %mask
  %aligned = icmp eq i64 %rest, 0
  %aligned.wide = zext i1 %aligned to i64
  %as.wanted = icmp eq i64 %aligned.wide, %want
  %right = and i1 %here, %as.wanted
  %fits = and i1 %right, %clean
  store i64 %address.word, ptr %slot
  ret i1 %fits
no:
  ret i1 false
}

; `rank` integers from 1 to 2^40 of a sequence, last first; null is none.  Takes over the reference.
define internal i1 @read_integers(ptr %sequence, i64 %rank, ptr %out) {
entry:
  %absent = icmp eq ptr %sequence, null
  br i1 %absent, label %no, label %count
count:
  %size = call i64 @PySequence_Size(ptr %sequence)
  %right.size = icmp eq i64 %size, %rank
  br i1 %right.size, label %next, label %wrong
next:
  %i = phi i64 [ 0, %count ], [ %i.next, %within ]
  %all = icmp eq i64 %i, %rank
  br i1 %all, label %done, label %read
read:
  %item = call ptr @PySequence_GetItem(ptr %sequence, i64 %i)
  %none = icmp eq ptr %item, null
  br i1 %none, label %wrong, label %convert
convert:
  %value = call i64 @PyLong_AsLongLong(ptr %item)
  call void @Py_DecRef(ptr %item)
  %less = sub i64 %value, 1
  %some = icmp ult i64 %less, 1099511627776
  br i1 %some, label %within, label %wrong
within:
  %i.next = add i64 %i, 1
  %position = sub i64 %rank, %i.next
  %to = getelementptr i64, ptr %out, i64 %position
  store i64 %value, ptr %to
  br label %next
done:
  call void @Py_DecRef(ptr %sequence)
  ret i1 true
wrong:
  call void @Py_DecRef(ptr %sequence)
  ret i1 false
no:
  ret i1 false
}

; A TensorDescriptor of the wanted block and padding.
define internal i1 @take_descriptor(ptr %plan, ptr %entry, ptr %object, i64 %ordinal, ptr %map) {
  %wanted = call ptr @map_of(ptr %plan, ptr %entry)
  %padding = load ptr, ptr %wanted
  %rank.at = getelementptr %Map, ptr %wanted, i32 0, i32 3
  %rank = load i64, ptr %rank.at
  %block.at = getelementptr %Map, ptr %wanted, i32 0, i32 4
  %block = alloca [5 x i64], align 16
  %right.padding = call i1 @is(ptr %object, ptr @padding, ptr %padding)
  br i1 %right.padding, label %blocks, label %no
blocks:
  %extents = call ptr @PyObject_GetAttr(ptr %object, ptr @block_shape)
  %has.block = call i1 @read_integers(ptr %extents, i64 %rank, ptr %block)
  br i1 %has.block, label %dimension, label %no
dimension:
  %d = phi i64 [ 0, %blocks ], [ %d.next, %equal ]
  %all = icmp eq i64 %d, %rank
  br i1 %all, label %base, label %compare
compare:
  %have.at = getelementptr i64, ptr %block, i64 %d
  %have = load i64, ptr %have.at
  %want.at = getelementptr i64, ptr %block.at, i64 %d
  %want = load i64, ptr %want.at
  %same = icmp eq i64 %have, %want
  br i1 %same, label %equal, label %no
equal:
  %d.next = add i64 %d, 1
  br label %dimension
base:
  %array = call ptr @PyObject_GetAttr(ptr %object, ptr @base)
  %no.array = icmp eq ptr %array, null
  br i1 %no.array, label %no, label %class
class:
  %e = load %Entry, ptr %entry
  %class.word = extractvalue %Entry %e, 5
  %of.at = getelementptr ptr, ptr %array, i64 1
  %of = load i64, ptr %of.at
  %right.class = icmp eq i64 %of, %class.word
  br i1 %right.class, label %encode, label %drop
encode:
  %shape = call ptr @PyObject_GetAttr(ptr %object, ptr @shape)
  %strides = call ptr @PyObject_GetAttr(ptr %object, ptr @strides)
  %fits = call i1 @encode(ptr %wanted, ptr %entry, ptr %array, ptr %shape, ptr %strides, i64 %ordinal, ptr %map)
  call void @Py_DecRef(ptr %array)
  ret i1 %fits
drop:
  call void @Py_DecRef(ptr %array)
  ret i1 false
no:
  ret i1 false
}

; An array itself, of the shape and strides that it has.
define internal i1 @take_tensor(ptr %plan, ptr %entry, ptr %object, i64 %ordinal, ptr %map) {
  %wanted = call ptr @map_of(ptr %plan, ptr %entry)
  %shape = call ptr @PyObject_GetAttr(ptr %object, ptr @shape)
  %self = alloca ptr
  store ptr %object, ptr %self
  %strides = call ptr @PyObject_VectorcallMethod(ptr @stride, ptr %self, i64 1, ptr null)
  %fits = call i1 @encode(ptr %wanted, ptr %entry, ptr %object, ptr %shape, ptr %strides, i64 %ordinal, ptr %map)
  ret i1 %fits
}

define internal ptr @map_of(ptr %plan, ptr %entry) {
  %offset.at = getelementptr %Entry, ptr %entry, i32 0, i32 9
  %offset = load i64, ptr %offset.at
  %map = getelementptr i8, ptr %plan, i64 %offset
  ret ptr %map
}

; Encodes a tensor map; takes over the references to shape and strides.  What the driver would not refuse is checked
; here: contiguous rows, and rows of whole 16 bytes where the kernel stores by it.
define internal i1 @encode(ptr %wanted, ptr %entry, ptr %array, ptr %shape.object, ptr %strides.object, i64 %ordinal,
    ptr %map) {
  %w = load %Map, ptr %wanted
  %code.wide = extractvalue %Map %w, 1
  %code = trunc i64 %code.wide to i32
  %size = extractvalue %Map %w, 2
  %rank = extractvalue %Map %w, 3
  %rank.narrow = trunc i64 %rank to i32
  %box = getelementptr %Map, ptr %wanted, i32 0, i32 5
  %swizzle = extractvalue %Map %w, 6
  %l2 = extractvalue %Map %w, 7
  %fill = extractvalue %Map %w, 8
  %stored = extractvalue %Map %w, 9
  %address.at = alloca i64
  %shape = alloca [5 x i64], align 16
  %strides = alloca [5 x i64], align 16
  %has.shape = call i1 @read_integers(ptr %shape.object, i64 %rank, ptr %shape)
  %has.strides = call i1 @read_integers(ptr %strides.object, i64 %rank, ptr %strides)
  %has.both = and i1 %has.shape, %has.strides
  br i1 %has.both, label %base, label %no
base:
  %fits = call i1 @take_array(ptr %entry, ptr %array, i64 %ordinal, ptr %address.at)
  br i1 %fits, label %rows, label %no
rows:
  %last.stride = load i64, ptr %strides
  %contiguous = icmp eq i64 %last.stride, 1
  %row = load i64, ptr %shape
  %row.bytes = mul i64 %row, %size
  %row.rest = and i64 %row.bytes, 15
  %row.whole = icmp eq i64 %row.rest, 0
  %loads = icmp eq i32 %stored, 0
  %row.right = or i1 %row.whole, %loads
  %rows.right = and i1 %contiguous, %row.right
  br i1 %rows.right, label %dimension, label %no
dimension:
  %d = phi i64 [ 0, %rows ], [ %d.next, %scale ]
  %all = icmp eq i64 %d, %rank
  br i1 %all, label %encode, label %scale
scale:
  %stride.at = getelementptr i64, ptr %strides, i64 %d
  %stride = load i64, ptr %stride.at
  %stride.bytes = mul i64 %stride, %size
  store i64 %stride.bytes, ptr %stride.at
  %d.next = add i64 %d, 1
  br label %dimension
encode:
  %address = load i64, ptr %address.at
  %base.address = inttoptr i64 %address to ptr
  %outer = getelementptr i64, ptr %strides, i64 1
  %status = call i32 @cuTensorMapEncodeTiled(ptr %map, i32 %code, i32 %rank.narrow, ptr %base.address, ptr %shape,
      ptr %outer, ptr %box, ptr @ones, i32 0, i32 %swizzle, i32 %l2, i32 %fill)
  %encoded = icmp eq i32 %status, 0
  ret i1 %encoded
no:
  ret i1 false
}
