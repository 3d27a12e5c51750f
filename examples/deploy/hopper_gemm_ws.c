/* C = A @ B by examples/hopper_gemm_ws.py, without Python: compiled ahead of time, launched through libcuda alone.
 *
 * tlxc compile examples/hopper_gemm_ws.py:gemm --target sm_90 --emit header -o examples/deploy
 * cc -O2 -I/usr/local/cuda/include examples/deploy/hopper_gemm_ws.c -o hopper_gemm_ws -lcuda && ./hopper_gemm_ws
 */
#include <stdlib.h>
#include "gemm.h"

enum { M = 1000, N = 776, K = 520 };
static uint16_t a[M * K], b[K * N], c[M * N]; /* float16 */

/* Small integers are exact in float16, and so are their sums here. */
static uint16_t half(int x) { return x == 0 ? 0 : x > 0 ? 0x3c00 : 0xbc00; }
static int integer(uint16_t h)
{
    int exponent = (h >> 10 & 31) - 25, mantissa = (h & 1023) + 1024;
    int x = (h & 0x7fff) == 0 ? 0 : exponent < 0 ? mantissa >> -exponent : mantissa << exponent;
    return h & 0x8000 ? -x : x;
}

static void expect(CUresult status, const char *what)
{
    if (status != CUDA_SUCCESS) printf("%s: CUDA error %d\n", what, status), exit(1);
}
#define DO(call) expect(call, #call)

int main(void)
{
    CUdevice device; CUcontext context; CUdeviceptr at[3]; CUtensorMap map[3]; gemm_kernel kernel;
    size_t bytes[3] = {sizeof a, sizeof b, sizeof c};
    uint64_t shape[3][2] = {{M, K}, {K, N}, {M, N}};
    int tiles = (M + gemm_const_BM - 1) / gemm_const_BM * ((N + gemm_const_BN - 1) / gemm_const_BN), sms, wrong = 0;
    for (int i = 0; i < M * K; i++) a[i] = half(i * 7 % 11 % 3 - 1);
    for (int i = 0; i < K * N; i++) b[i] = half(i * 5 % 13 % 3 - 1);
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
    DO(cuDevicePrimaryCtxRetain(&context, device));
    DO(cuCtxSetCurrent(context));
    DO(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    DO(gemm_load(&kernel));
    for (int i = 0; i < 3; i++) DO(cuMemAlloc(&at[i], bytes[i]));
    DO(cuMemcpyHtoD(at[0], a, sizeof a));
    DO(cuMemcpyHtoD(at[1], b, sizeof b));
    DO(gemm_map_a_desc(&kernel, &map[0], at[0], shape[0], NULL, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    DO(gemm_map_b_desc(&kernel, &map[1], at[1], shape[1], NULL, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    DO(gemm_map_c_desc(&kernel, &map[2], at[2], shape[2], NULL, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    DO(gemm_launch(&kernel, tiles < sms ? tiles : sms, 1, 1, NULL, &map[0], &map[1], &map[2], M, N, K));
    DO(cuMemcpyDtoH(c, at[2], sizeof c));
    for (int i = 0; i < M; i++)
        for (int j = 0, sum; j < N; j++) {
            sum = 0;
            for (int k = 0; k < K; k++) sum += integer(a[i * K + k]) * integer(b[k * N + j]);
            wrong += integer(c[i * N + j]) != sum;
        }
    printf("%d x %d x %d: %d of %d elements are wrong\n", M, N, K, wrong, M * N);
    return wrong != 0;
}
