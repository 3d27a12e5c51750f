"""The text of the C header, as templates; `header` fills them in.

The first part are the sections of a header, the second what some headers have within them.
"""

HEAD = """\
/* $name.h: the kernel `$kernel` for $targets, written by tlxc $version.
 *
 *     ${name}_kernel kernel;                      in a current CUDA context:
 *     ${name}_load(&kernel);                      the cubin for its device
 *     ${name}_launch(&kernel, x, y, z, stream, ...);
 *
 * Functions return the driver's status; CUDA_ERROR_INVALID_VALUE also for an argument that the code cannot take.
 */
#ifndef $guard
#define $guard

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

$constants
$images
"""

VARIANT = """\
/* What is compiled for one GPU.  Sizes are bytes. */
typedef struct {
    int major, minor;                /* compute capability */
    $image_type
    unsigned threads;                /* of a CTA, along x */
    unsigned shared;                 /* dynamic shared memory of a CTA */
    unsigned workspace;              /* global memory of a CTA, for the time of a launch */
    unsigned cluster[3];             /* CTAs, which divide the grid */$map_fields
} ${name}_variant;

static const ${name}_variant ${name}_variants[$count] = {
$rows
};

/* The kernel in one context. */
typedef struct {
    CUmodule module;
    CUfunction function;
    const ${name}_variant *variant;
} ${name}_kernel;

"""

LOAD = """\
/* Loads the kernel into the current context; CUDA_ERROR_NO_BINARY_FOR_GPU where it is not compiled for the device. */
static inline CUresult ${name}_load(${name}_kernel *kernel$place)
{
    CUdevice device;
    int major = 0, minor = 0;
    size_t i = 0;$path
    CUresult status = cuCtxGetDevice(&device);
    if (!status)
        status = cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    if (!status)
        status = cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    if (status)
        return status;
    while (i < $count && (${name}_variants[i].major != major || ${name}_variants[i].minor != minor))
        i++;
    if (i == $count)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    kernel->variant = &${name}_variants[i];$load
    if (status)
        return status;
    status = cuModuleGetFunction(&kernel->function, kernel->module, "$kernel");
    if (!status && kernel->variant->shared)
        status = cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    (int)kernel->variant->shared);$large_cluster
    if (status)
        cuModuleUnload(kernel->module);
    return status;
}

"""

ENCODE = """\
/* A tensor map.  Shape and strides are in elements, slowest dimension first. */
static inline CUresult ${name}_encode(
    const ${name}_kernel *kernel, unsigned index, CUtensorMapDataType type, unsigned size, unsigned rank,
    CUtensorMap *map, CUdeviceptr base, const uint64_t *shape, const uint64_t *strides, CUtensorMapFloatOOBfill fill)
{
    cuuint64_t extents[$rank], bytes[$rank] = {0}, dense = size;
    cuuint32_t steps[$rank];
    unsigned i;
    for (i = 0; i < rank; i++) {
        extents[i] = shape[rank - 1 - i];
        bytes[i] = strides ? strides[rank - 1 - i] * size : dense;
        dense *= extents[i];
        steps[i] = 1;
    }
    if (bytes[0] != size)
        return CUDA_ERROR_INVALID_VALUE; /* rows are contiguous */
    if (kernel->variant->maps[index].stored && extents[0] * size % $row)
        return CUDA_ERROR_INVALID_VALUE; /* a store would write beyond the end of the rows, to $row bytes */
    return cuTensorMapEncodeTiled(map, type, rank, (void *)base, extents, bytes + 1, kernel->variant->maps[index].box,
                                  steps, CU_TENSOR_MAP_INTERLEAVE_NONE, kernel->variant->maps[index].swizzle,
                                  $l2, fill);
}

"""

MAP = """\
/* The tensor map of `$param`: an array of $element in $dimensions dimensions, read or written in blocks of $block.
 * Strides may be NULL for a dense array.  `fill` is what elements outside read as. */
static inline CUresult ${name}_map_$param(
    const ${name}_kernel *kernel, CUtensorMap *map, CUdeviceptr base, const uint64_t shape[$dimensions],
    const uint64_t *strides, CUtensorMapFloatOOBfill fill)
{
    return ${name}_encode(kernel, $index, $data_type, $size, $dimensions, map, base, shape, strides, fill);
}

"""

GRID = """\
/* The CTAs that a launch for such arguments wants. */
static inline void ${name}_grid(unsigned grid[3]$integers)
{
    grid[0] = (unsigned)($x);
    grid[1] = (unsigned)($y);
    grid[2] = (unsigned)($z);
}

"""

LAUNCH = """\
$pdl/* Launches a grid of so many CTAs in a stream; an empty grid launches nothing. */
static inline CUresult ${name}_launch(
    const ${name}_kernel *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, CUstream stream$declarations)
{
    CUlaunchConfig config;$attribute
    CUresult status;
    const unsigned *cluster = kernel->variant->cluster;$workspace_variable
    void *params[] = {$addresses};
    if (!grid_x || !grid_y || !grid_z)
        return CUDA_SUCCESS;
    if (grid_x % cluster[0] || grid_y % cluster[1] || grid_z % cluster[2])
        return CUDA_ERROR_INVALID_VALUE;$promises$workspace_new
    memset(&config, 0, sizeof config);
    config.gridDimX = grid_x, config.gridDimY = grid_y, config.gridDimZ = grid_z;
    config.blockDimX = kernel->variant->threads, config.blockDimY = 1, config.blockDimZ = 1;
    config.sharedMemBytes = kernel->variant->shared;
    config.hStream = stream;$dependent
    status = cuLaunchKernelEx(&config, kernel->function, params, NULL);$workspace_free
    return status;
}

#endif
"""

# -- what some headers have ------------------------------------------------------------------------------------------

PDL = """\
/* 1: a grid may start before the one ahead of it in its stream has ended; the kernel waits for that one by itself. */
#ifndef ${macro}
#define ${macro} 0
#endif

"""
ATTRIBUTE = """
#if ${macro}
    CUlaunchAttribute dependent;
#endif"""
DEPENDENT = """
#if ${macro}
    memset(&dependent, 0, sizeof dependent);
    dependent.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    dependent.value.programmaticStreamSerializationAllowed = 1;
    config.attrs = &dependent, config.numAttrs = 1;
#endif"""
PATH = """
    char path[4096];"""
WORKSPACE_VARIABLE = """
    CUdeviceptr workspace = 0;
    CUresult freed;"""
WORKSPACE_NEW = """
    status = cuMemAllocAsync(&workspace, (size_t)kernel->variant->workspace * grid_x * grid_y * grid_z, stream);
    if (status)
        return status;"""
WORKSPACE_FREE = """
    freed = cuMemFreeAsync(workspace, stream);
    if (!status)
        status = freed;"""

LOAD_IMAGE = """
    status = cuModuleLoadData(&kernel->module, kernel->variant->image);"""
LOAD_FILE = """
    if (snprintf(path, sizeof path, "%s/%s", folder, kernel->variant->file) >= (int)sizeof path)
        return CUDA_ERROR_FILE_NOT_FOUND;
    status = cuModuleLoad(&kernel->module, path);"""
LARGE_CLUSTER = """
    if (!status)
        status = cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);"""
MAP_FIELDS = """
    struct {
        cuuint32_t box[$rank];           /* elements of a copy, fastest dimension first */
        CUtensorMapSwizzle swizzle;
        int stored;                  /* whether the kernel stores by it */
    } maps[$map_count];"""
