/* A driver library without a GPU: it says what it is asked, and computes the launch of a function called `gemm` itself,
 * from its parameters alone: three tensor maps and three integers. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    cuuint64_t base, shape[2], row_bytes, facts;
} Map; /* what the stand-in puts into a CUtensorMap; the fastest dimension first */

static char name[64];
static int number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

CUresult cuInit(unsigned flags) { return (CUresult)flags; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)(size_t)(16 + device);
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) { return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
CUresult cuCtxGetDevice(CUdevice *device) { *device = 0; return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
    *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? number("STAND_IN_MAJOR", 9)
             : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0 : 12 + device;
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    if ((size_t)image % 8 || memcmp(image, "\177ELF", 4)) return CUDA_ERROR_INVALID_VALUE;
    *module = (CUmodule)image;
    return CUDA_SUCCESS;
}
CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    FILE *file = fopen(path, "rb");
    printf("load %s\n", path);
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    fclose(file);
    *module = (CUmodule)name;
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) { return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *wanted)
{
    *function = (CUfunction)module;
    snprintf(name, sizeof name, "%s", wanted);
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value)
{
    printf("attribute %d = %d\n", (int)which, value);
    return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 256, bytes)) return CUDA_ERROR_INVALID_VALUE;
    *address = (CUdeviceptr)memory;
    return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    memcpy((void *)to, from, bytes);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    memcpy(to, (void *)from, bytes);
    return CUDA_SUCCESS;
}
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    printf("workspace %zu in %zu\n", bytes, (size_t)stream);
    return cuMemAlloc(address, bytes);
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    printf("free in %zu\n", (size_t)stream);
    free((void *)address);
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
                                const cuuint64_t *shape, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill)
{
    Map *made = (Map *)map;
    printf("map type %d shape", (int)type);
    for (cuuint32_t i = 0; i < rank; i++) printf(" %llu", (unsigned long long)shape[i]);
    printf(" strides");
    for (cuuint32_t i = 0; i + 1 < rank; i++) printf(" %llu", (unsigned long long)strides[i]);
    printf(" box");
    for (cuuint32_t i = 0; i < rank; i++) printf(" %u/%u", box[i], steps[i]);
    printf(" interleave %d swizzle %d l2 %d fill %d\n", (int)interleave, (int)swizzle, (int)l2, (int)fill);
    if ((size_t)map % 64 || (size_t)base % 16) return CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof *map);
    made->base = (cuuint64_t)base;
    for (cuuint32_t i = 0; i < rank && i < 2; i++) made->shape[i] = shape[i];
    made->row_bytes = rank > 1 ? strides[0] : 0;
    return CUDA_SUCCESS;
}

static int integer(uint16_t h) /* of a float16 that is one */
{
    int exponent = (h >> 10 & 31) - 25, mantissa = (h & 1023) + 1024;
    int x = (h & 0x7fff) == 0 ? 0 : exponent < 0 ? mantissa >> -exponent : mantissa << exponent;
    return h & 0x8000 ? -x : x;
}
static uint16_t half(int x) /* of an integer below 2048 */
{
    unsigned size = (unsigned)abs(x), exponent = 25;
    if (!x) return 0;
    for (; size < 1024; size *= 2) exponent--;
    return (uint16_t)((x < 0) << 15 | exponent << 10 | (size - 1024));
}
static uint16_t *element(const Map *map, int row, int column)
{
    return (uint16_t *)(map->base + row * map->row_bytes) + column;
}

static void gemm(const Map *a, const Map *b, const Map *c, int m, int n, int k)
{
    for (int row = 0; row < m; row++)
        for (int column = 0; column < n; column++) {
            int sum = 0;
            for (int i = 0; i < k; i++) sum += integer(*element(a, row, i)) * integer(*element(b, i, column));
            *element(c, row, column) = half(sum);
        }
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    int dependent = config->numAttrs == 1 && config->attrs->value.programmaticStreamSerializationAllowed == 1 &&
                    config->attrs->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    if (!function || extra || config->numAttrs != (unsigned)dependent) return CUDA_ERROR_INVALID_VALUE;
    printf("%slaunch %s grid %u %u %u block %u %u %u shared %u stream %zu\n", dependent ? "dependent " : "", name,
           config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes,
           (size_t)config->hStream);
    if (!strcmp(name, "gemm"))
        gemm(params[0], params[1], params[2], *(int *)params[3], *(int *)params[4], *(int *)params[5]);
    for (int i = 0, size; getenv("STAND_IN_SIZES") && (size = getenv("STAND_IN_SIZES")[i]) != 0; i++) {
        cuuint64_t word = 0; /* one digit for each parameter: its bytes */
        memcpy(&word, params[i], (size_t)(size - '0'));
        printf("param %llx\n", (unsigned long long)word);
    }
    return CUDA_SUCCESS;
}
