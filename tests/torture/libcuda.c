/* A stand-in for the CUDA driver library, for tests of the runtime without a GPU.
 *
 * Two GPUs of compute capability 9.0, whose memory is the host's.  They run one kernel, out[i] = x[i] * factor + s, with
 * the parameters (x, out, n, s).  Which code that is, and with which factor, stands in the file that
 * STANDIN_KERNELS names: lines "hash factor block threads", the hash being FNV-1a (64 bits) of the whole cubin.  Other code
 * is refused, as damaged code is by the real driver.  So are calls in a process forked from one that called cuInit,
 * handles and memory of the other GPU, and loading code in a thread that captures.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, CAPTURE_UNSUPPORTED = 900,
};
enum { DEVICES = 2, DEPTH = 16, KERNELS = 256 };
static const size_t MEMORY = (size_t)1 << 30;

typedef struct { int ordinal; char *memory; _Atomic size_t used; } Context;
typedef struct { uint64_t hash; float factor; int block, threads; } Code;
typedef struct { const Code *code; Context *context; } Function;
typedef struct { unsigned grid[3], block[3], shared; void *stream; void *attributes; unsigned count; } Config;
typedef struct Work { Function *function; unsigned blocks; const float *x; float *out; int n; float s; struct Work *next; } Work;
typedef struct { Context *context; int capturing; Work *first, **last; } Stream;

static pid_t owner;
static Context contexts[DEVICES];
static Code codes[KERNELS];
static int known;
static _Thread_local Context *stack[DEPTH];
static _Thread_local int depth, captures;

#define API __attribute__((visibility("default"))) int
#define ENTER do { if (owner != getpid()) return NOT_INITIALIZED; } while (0)

static Context *current(void) { return depth ? stack[depth - 1] : NULL; }

/* -- start and devices */

static int read_kernels(void) {
    const char *path = getenv("STANDIN_KERNELS");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return SUCCESS;
    Code *code = codes;
    while (known < KERNELS
           && fscanf(file, "%lx %f %d %d", &code->hash, &code->factor, &code->block, &code->threads) == 4)
        code = &codes[++known];
    fclose(file);
    return SUCCESS;
}

API cuInit(unsigned flags) {
    if (owner) return owner == getpid() ? SUCCESS : NOT_INITIALIZED;
    for (int i = 0; i < DEVICES; i++) {
        contexts[i].ordinal = i;
        contexts[i].memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (contexts[i].memory == MAP_FAILED) return OUT_OF_MEMORY;
    }
    read_kernels();
    owner = getpid();
    return SUCCESS;
}

API cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
API cuDeviceGetCount(int *count) { ENTER; *count = DEVICES; return SUCCESS; }
API cuDeviceGet(int *device, int ordinal) {
    ENTER;
    *device = ordinal;
    return ordinal < DEVICES ? SUCCESS : INVALID_DEVICE;
}
API cuDeviceGetName(char *name, int length, int device) { ENTER; snprintf(name, length, "stand-in %d", device); return SUCCESS; }
API cuDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER;
    enum { MAJOR = 75, MINOR = 76 };
    *value = attribute == MAJOR ? 9 : 0;
    return attribute == MAJOR || attribute == MINOR ? SUCCESS : INVALID_VALUE;
}

/* -- contexts */

API cuDevicePrimaryCtxRetain(Context **context, int device) { ENTER; *context = &contexts[device]; return SUCCESS; }
API cuCtxGetCurrent(Context **context) { ENTER; *context = current(); return SUCCESS; }
API cuCtxPushCurrent_v2(Context *context) {
    ENTER;
    if (depth == DEPTH) return INVALID_CONTEXT;
    stack[depth++] = context;
    return SUCCESS;
}
API cuCtxPopCurrent_v2(Context **context) {
    ENTER;
    if (!depth) return INVALID_CONTEXT;
    Context *popped = stack[--depth];
    if (context) *context = popped;
    return SUCCESS;
}
API cuCtxGetDevice(int *device) {
    ENTER;
    if (!current()) return INVALID_CONTEXT;
    *device = current()->ordinal;
    return SUCCESS;
}

/* -- memory: never freed */

API cuMemAlloc_v2(uint64_t *address, size_t size) {
    ENTER;
    Context *context = current();
    if (!context) return INVALID_CONTEXT;
    size_t at = atomic_fetch_add(&context->used, (size + 255) / 256 * 256);
    if (at + size > MEMORY) return OUT_OF_MEMORY;
    *address = (uint64_t)(context->memory + at);
    return SUCCESS;
}

static int is_of(const Context *context, const void *address, size_t size) {
    const char *at = address;
    return at >= context->memory && at + size <= context->memory + MEMORY;
}

API cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t size, void *stream) { ENTER; memcpy(to, from, size); return SUCCESS; }
API cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t size, void *stream) { ENTER; memcpy(to, from, size); return SUCCESS; }

/* Part of the library, but of no use to that one kernel */
API cuMemAllocAsync(uint64_t *address, size_t size, void *stream) { ENTER; return INVALID_VALUE; }
API cuMemFreeAsync(uint64_t address, void *stream) { ENTER; return INVALID_VALUE; }
API cuTensorMapEncodeTiled(void *map, ...) { ENTER; return INVALID_VALUE; }

API cuPointerGetAttribute(int *value, int attribute, uint64_t address) {
    ENTER;
    enum { DEVICE_ORDINAL = 9 };
    for (int i = 0; i < DEVICES; i++)
        if (attribute == DEVICE_ORDINAL && is_of(&contexts[i], (void *)address, 1)) {
            *value = i;
            return SUCCESS;
        }
    return INVALID_VALUE;
}

/* -- code */

static size_t elf_size(const unsigned char *image) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
    if (memcmp(head->e_ident, ELFMAG, SELFMAG)) return 0;
    size_t end = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
    size_t programs = head->e_phoff + (size_t)head->e_phnum * head->e_phentsize;
    return end > programs ? end : programs;
}

static const Code *code_of(const unsigned char *image) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0, size = elf_size(image); i < size; i++) hash = (hash ^ image[i]) * 0x100000001b3u;
    for (int i = 0; i < known; i++)
        if (codes[i].hash == hash) return &codes[i];
    return NULL;
}

API cuModuleLoadData(Function **module, const void *image) {
    ENTER;
    if (captures) return CAPTURE_UNSUPPORTED;
    if (!current()) return INVALID_CONTEXT;
    const Code *code = code_of(image);
    if (!code) return INVALID_IMAGE;
    *module = malloc(sizeof(Function));
    **module = (Function){code, current()};
    return SUCCESS;
}
API cuModuleGetFunction(Function **function, Function *module, const char *name) { ENTER; *function = module; return SUCCESS; }
API cuFuncSetAttribute(Function *function, int attribute, int value) { ENTER; return SUCCESS; }
API cuFuncGetAttribute(int *value, int attribute, Function *function) { ENTER; *value = 16; return SUCCESS; }

/* -- streams, launches and graphs: a launch is done when it returns, or recorded by a stream that captures */

API cuStreamCreate(Stream **stream, unsigned flags) {
    ENTER;
    if (!current()) return INVALID_CONTEXT;
    *stream = calloc(1, sizeof(Stream));
    (*stream)->context = current();
    return SUCCESS;
}
API cuStreamSynchronize(Stream *stream) { ENTER; return SUCCESS; }
API cuStreamIsCapturing(Stream *stream, int *state) { ENTER; *state = stream && stream->capturing; return SUCCESS; }
API cuStreamBeginCapture_v2(Stream *stream, int mode) {
    ENTER;
    if (!stream || stream->capturing) return CAPTURE_UNSUPPORTED;
    stream->capturing = 1, stream->first = NULL, stream->last = &stream->first;
    captures++;
    return SUCCESS;
}
API cuStreamEndCapture(Stream *stream, Work **graph) {
    ENTER;
    stream->capturing = 0;
    captures--;
    *graph = stream->first;
    return SUCCESS;
}

static int perform(const Work *work) {
    size_t size = (size_t)work->n * sizeof(float);
    const Function *function = work->function;
    if (!is_of(function->context, work->x, size) || !is_of(function->context, work->out, size)) return ILLEGAL_ADDRESS;
    long end = (long)work->blocks * function->code->block;
    for (long i = 0; i < end && i < work->n; i++) work->out[i] = work->x[i] * function->code->factor + work->s;
    return SUCCESS;
}

API cuLaunchKernelEx(const Config *config, Function *function, void **params, void **extra) {
    ENTER;
    Stream *stream = config->stream;
    if (function->context != current() || (stream && stream->context != current())) return INVALID_HANDLE;
    if (config->block[0] != (unsigned)function->code->threads || config->grid[1] * config->grid[2] != 1) return INVALID_VALUE;
    Work work = {function, config->grid[0], *(float **)params[0], *(float **)params[1], *(int *)params[2],
                 *(float *)params[3], NULL};
    if (!stream || !stream->capturing) return perform(&work);
    *stream->last = malloc(sizeof(Work));
    **stream->last = work;
    stream->last = &(*stream->last)->next;
    return SUCCESS;
}
API cuGraphInstantiateWithFlags(const Work **exec, const Work *graph, uint64_t flags) { ENTER; *exec = graph; return SUCCESS; }
API cuGraphDestroy(Work *graph) { ENTER; return SUCCESS; }
API cuGraphExecDestroy(Work *graph) {
    ENTER;
    while (graph) {
        Work *next = graph->next;
        free(graph);
        graph = next;
    }
    return SUCCESS;
}
API cuGraphLaunch(const Work *graph, Stream *stream) {
    ENTER;
    int status = SUCCESS;
    for (; graph && !status; graph = graph->next) status = perform(graph);
    return status;
}

/* -- how cuda.bindings finds all this */

API cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    char newer[128];
    void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    snprintf(newer, sizeof newer, "%s_v2", name);
    *function = dlsym(library, newer);
    if (!*function) *function = dlsym(library, name);
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}
