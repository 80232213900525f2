// Honest kernels with known results, compiled and run for the host target in every flavour.

#include "run/host/host_program.h"

namespace stitch::host::testing {
namespace {

constexpr const char* kCore = R"cuda(
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define EXPECT(x) do { if (!(x)) { std::printf("%d: %s\n", __LINE__, #x); failures++; } } while (0)
int failures = 0;

template <class T, int THREADS>
__global__ void __launch_bounds__(THREADS) block_sum(const T* __restrict__ x, T* y, int n) {
  __shared__ T part[THREADS / 32];
  T v = 0;
  for (int i = threadIdx.x + blockIdx.x * n; i < (blockIdx.x + 1) * n; i += THREADS) v += x[i];
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
  if (threadIdx.x % warpSize == 0) part[threadIdx.x / warpSize] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    v = threadIdx.x < THREADS / 32 ? part[threadIdx.x] : T(0);
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    if (threadIdx.x == 0) y[blockIdx.x] = v;
  }
}

constexpr int TILE = 32;
__global__ void transpose(const float* in, float* out, int rows, int cols) {
  __shared__ float tile[TILE][TILE + 1];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += blockDim.y)
    if (x < cols && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * cols + x];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x;
  y = blockIdx.x * TILE + threadIdx.y;
  for (int j = 0; j < TILE; j += blockDim.y)
    if (x < rows && y + j < cols) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}

__global__ void histogram(const unsigned char* data, int n, unsigned* bins) {
  extern __shared__ unsigned local[];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[data[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

__global__ void early_return(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  y[i] = i;
}
__global__ void votes(int* out) {
  int lane = threadIdx.x;
  unsigned odd = __ballot_sync(~0u, lane & 1);
  int count = __syncthreads_count(lane < 5), any = __syncthreads_or(lane == 99), all = __syncthreads_and(lane < 99);
  int up = __shfl_up_sync(~0u, lane, 1), seg = __shfl_sync(~0u, lane, 0, 8);
  unsigned same = __match_any_sync(~0u, lane / 4);
  int top = __reduce_max_sync(~0u, lane * 3);
  if (lane == 9) { out[0] = odd == 0xaaaaaaaau; out[1] = count; out[2] = any; out[3] = all; out[4] = up; out[5] = seg; out[6] = same == 0xf00u; out[7] = top; }
}
__global__ void add_one(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1.0f; }
__device__ int last_block_counter = 0;
__global__ void last_block_sum(const float* x, float* part, float* out) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    float s = 0;
    for (int i = 0; i < 8; ++i) s += x[blockIdx.x * 8 + i];
    part[blockIdx.x] = s;
    __threadfence();
    last = atomicAdd(&last_block_counter, 1) == int(gridDim.x) - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) { float s = 0; for (unsigned b = 0; b < gridDim.x; ++b) s += part[b]; *out = s; last_block_counter = 0; }
}

int main() {
  float *x, *y;
  const int n = 1000, blocks = 20;
  cudaMalloc(&x, n * blocks * sizeof(float));
  cudaMalloc(&y, n * blocks * sizeof(float));
  std::vector<float> h(n * blocks);
  for (int i = 0; i < n * blocks; ++i) h[i] = i % 13;
  cudaMemcpy(x, h.data(), h.size() * 4, cudaMemcpyHostToDevice);
  block_sum<float, 256><<<blocks, 256>>>(x, y, n);
  for (int b = 0; b < blocks; ++b) { double s = 0; for (int i = 0; i < n; ++i) s += h[b * n + i]; EXPECT(y[b] == s); }
  const int rows = 70, cols = 45;
  transpose<<<dim3((cols + 31) / 32, (rows + 31) / 32), dim3(32, 8)>>>(x, y, rows, cols);
  for (int r = 0; r < rows; ++r) for (int c = 0; c < cols; ++c) EXPECT(y[c * rows + r] == x[r * cols + c]);
  unsigned char* data; unsigned* bins;
  cudaMalloc(&data, 5000); cudaMalloc(&bins, 1024); cudaMemset(bins, 0, 1024);
  for (int i = 0; i < 5000; ++i) data[i] = (unsigned char)(i * 7);
  histogram<<<4, 128, 256 * sizeof(unsigned)>>>(data, 5000, bins);
  unsigned total = 0; for (int i = 0; i < 256; ++i) total += bins[i];
  EXPECT(total == 5000); EXPECT(bins[7] == 20);
  early_return<<<3, 256>>>(y, 700); EXPECT(y[699] == 699);
  int* out; cudaMalloc(&out, 64); votes<<<1, 32>>>(out);
  EXPECT(out[0] == 1); EXPECT(out[1] == 5); EXPECT(out[2] == 0); EXPECT(out[3] == 1); EXPECT(out[4] == 8); EXPECT(out[5] == 8); EXPECT(out[6] == 1); EXPECT(out[7] == 93);
  last_block_sum<<<16, 32>>>(x, y, y + 100); { float s = 0; for (int i = 0; i < 128; ++i) s += x[i]; EXPECT(y[100] == s); }

  cudaStream_t a, b; cudaEvent_t e, f; cudaStreamCreate(&a); cudaStreamCreate(&b); cudaEventCreate(&e); cudaEventCreate(&f);
  cudaMemset(x, 0, 400);
  cudaGraph_t graph; cudaGraphExec_t exec;
  EXPECT(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal) == cudaSuccess);
  add_one<<<1, 100, 0, a>>>(x, 100);
  cudaEventRecord(e, a); cudaStreamWaitEvent(b, e, 0);
  add_one<<<1, 100, 0, b>>>(x, 100);
  cudaEventRecord(f, b); cudaStreamWaitEvent(a, f, 0);
  cudaMemcpyAsync(y, x, 400, cudaMemcpyDeviceToDevice, a);
  EXPECT(cudaStreamEndCapture(a, &graph) == cudaSuccess);
  EXPECT(x[0] == 0);
  EXPECT(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(exec, a);
  EXPECT(x[0] == 6); EXPECT(y[99] == 6);
  add_one<<<1, 100, 0, b>>>(x, 100); EXPECT(x[0] == 7);

  EXPECT(cudaGetLastError() == cudaSuccess);
  add_one<<<1, 1025>>>(x, 100); EXPECT(cudaPeekAtLastError() == cudaErrorInvalidConfiguration); EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration); EXPECT(cudaGetLastError() == cudaSuccess);
  add_one<<<0, 32>>>(x, 100); EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  add_one<<<dim3(1, 70000), 32>>>(x, 100); EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  add_one<<<1, dim3(1, 1, 65)>>>(x, 100); EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  add_one<<<1, 32, 50 << 10>>>(x, 100); EXPECT(cudaGetLastError() == cudaErrorInvalidValue); EXPECT(x[0] == 7);
  EXPECT(cudaFuncSetAttribute(add_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 50 << 10) == cudaSuccess);
  add_one<<<1, 32, 50 << 10>>>(x, 100); EXPECT(cudaGetLastError() == cudaSuccess); EXPECT(x[0] == 8);
  EXPECT(cudaFuncSetAttribute(add_one, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10) == cudaErrorInvalidValue);
  cudaGetLastError();
  if (failures == 0) std::puts("all right");
  return failures != 0;
}
)cuda";

constexpr const char* kTypes = R"cuda(
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
#include <cstdio>
#include <vector>
#define EXPECT(x) do { if (!(x)) { std::printf("%d: %s\n", __LINE__, #x); failures++; } } while (0)
int failures = 0;
namespace cg = cooperative_groups;
using namespace nvcuda;

template <class T, class Frag, int K>
__global__ void matmul(const T* a, const T* b, float* c, int m, int n, int k) {  // a row-major, b column-major
  wmma::fragment<wmma::matrix_a, 16, 16, K, Frag, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, K, Frag, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, K, float> fc;
  wmma::fill_fragment(fc, 0.0f);
  const int row = blockIdx.y * 16, col = blockIdx.x * 16;
  for (int i = 0; i < k; i += K) {
    wmma::load_matrix_sync(fa, a + row * k + i, k);
    wmma::load_matrix_sync(fb, b + col * k + i, k);
    wmma::mma_sync(fc, fa, fb, fc);
  }
  for (int i = 0; i < fc.num_elements; ++i) fc.x[i] *= 2.0f;
  wmma::store_matrix_sync(c + row * n + col, fc, n, wmma::mem_row_major);
}
template <class T, class Frag, int K>
void check_matmul() {
  const int m = 32, n = 48, k = 64;
  T *a, *b; float* c;
  cudaMalloc(&a, m * k * sizeof(T)); cudaMalloc(&b, n * k * sizeof(T)); cudaMalloc(&c, m * n * sizeof(float));
  for (int i = 0; i < m * k; ++i) a[i] = T(float(i * 7 % 11 - 5));
  for (int i = 0; i < n * k; ++i) b[i] = T(float(i * 5 % 13 - 6));
  matmul<T, Frag, K><<<dim3(n / 16, m / 16), 32>>>(a, b, c, m, n, k);
  EXPECT(cudaGetLastError() == cudaSuccess);
  for (int r = 0; r < m; ++r) for (int s = 0; s < n; ++s) {
    float sum = 0; for (int i = 0; i < k; ++i) sum += float(a[r * k + i]) * float(b[s * k + i]);
    EXPECT(c[r * n + s] == 2 * sum);
  }
}
__global__ void halves(const __half2* x, __half2* y, float* f) {
  __half2 v = x[threadIdx.x];
  y[threadIdx.x] = __hfma2(v, __float2half2_rn(2.0f), __floats2half2_rn(1.0f, -1.0f));
  f[threadIdx.x] = __half2float(__shfl_xor_sync(~0u, v.x, 1));
}
__global__ void groups(int* out) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  __shared__ alignas(16) int buffer[64];
  int sum = cg::reduce(tile, (int)threadIdx.x, cg::plus<int>());
  buffer[threadIdx.x] = sum + tile.shfl((int)threadIdx.x, 3);
  block.sync();
  out[threadIdx.x] = buffer[63 - threadIdx.x];
}
__global__ void copies(const float4* x, float* y) {
  __shared__ float4 stage[2][32];
  for (int i = 0; i < 2; ++i) { __pipeline_memcpy_async(&stage[i][threadIdx.x], &x[i * 32 + threadIdx.x], 16); __pipeline_commit(); }
  __pipeline_wait_prior(0); __syncthreads();
  y[threadIdx.x] = stage[0][31 - threadIdx.x].y + stage[1][threadIdx.x].w;
}
__global__ void grid_steps(int* x, int n) {
  cg::grid_group grid = cg::this_grid();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int s = 0; s < 3; ++s) {
    int v = x[(s % 2) * n + (i + 1) % n];
    grid.sync();
    x[((s + 1) % 2) * n + i] = v + 1;
    grid.sync();
  }
}
int main() {
  check_matmul<__half, __half, 16>();
  check_matmul<__nv_bfloat16, __nv_bfloat16, 16>();
  check_matmul<float, wmma::precision::tf32, 8>();
  // Round to nearest even, subnormals, overflow, NaN.
  EXPECT(__half_as_ushort(__float2half(1.0f + 1.0f / 2048)) == 0x3c00); EXPECT(__half_as_ushort(__float2half(1.0f + 3.0f / 2048)) == 0x3c02);
  EXPECT(__half_as_ushort(__float2half(65520.0f)) == 0x7c00); EXPECT(__half_as_ushort(__float2half(65519.0f)) == 0x7bff);
  EXPECT(__half_as_ushort(__float2half(5.9604645e-8f)) == 1); EXPECT(__hisnan(__float2half(__int_as_float(0x7fc00000))));
  EXPECT(__bfloat16_as_ushort(__float2bfloat16(1.00390625f)) == 0x3f80); EXPECT(__bfloat16_as_ushort(__float2bfloat16(1.01171875f)) == 0x3f82);
  EXPECT(__bfloat16_as_ushort(__float2bfloat16(3.4e38f)) == 0x7f80); EXPECT(__bfloat16_as_ushort(__double2bfloat16(1.00390625 + 1e-12)) == 0x3f81);
  for (unsigned i = 0; i < 65536; ++i) { __half h = __ushort_as_half((unsigned short)i); if (!__hisnan(h)) EXPECT(__half_as_ushort(__float2half(__half2float(h))) == i); }
  __half2 *x, *y; float* f; cudaMalloc(&x, 128); cudaMalloc(&y, 128); cudaMalloc(&f, 1024);
  for (int i = 0; i < 32; ++i) x[i] = __floats2half2_rn(i, -i);
  halves<<<1, 32>>>(x, y, f);
  EXPECT(__low2float(y[5]) == 11); EXPECT(__high2float(y[5]) == -11); EXPECT(f[4] == 5);
  int* o; cudaMalloc(&o, 4096); groups<<<1, 64>>>(o); EXPECT(o[63] == 28 + 3); EXPECT(o[0] == 56 * 8 + 28 + 59);
  float4* q; cudaMalloc(&q, 64 * 16); for (int i = 0; i < 64; ++i) q[i] = make_float4(0, i, 0, 100 * i);
  copies<<<1, 32>>>(q, f); EXPECT(f[1] == 30 + 3300);
  int n = 256; for (int i = 0; i < 2 * n; ++i) o[i] = i;
  void* args[] = {&o, &n};
  EXPECT(cudaLaunchCooperativeKernel(grid_steps, dim3(4), dim3(64), args) == cudaSuccess);
  EXPECT(o[n + 10] == 16);
  if (failures == 0) std::puts("all right");
  return failures != 0;
}
)cuda";

class Honest : public ::testing::TestWithParam<Sanitize> {
 protected:
  void expect_all_right(const char* source) {
    auto folder = TempFolder::create("host_kernels");
    ASSERT_TRUE(folder.has_value());
    const Built built = build(folder->path(), source, GetParam());
    ASSERT_EQ(built.problem, "");
    const RunOutcome r = run(built, GetParam());
    EXPECT_EQ(r.process.exit_code, 0) << r.process.out << r.process.err;
    EXPECT_EQ(r.process.out, "all right\n");
    EXPECT_FALSE(fs::exists(r.report)) << *read_file(r.report);
  }
};

TEST_P(Honest, Core) { expect_all_right(kCore); }
TEST_P(Honest, TypesAndGroups) { expect_all_right(kTypes); }

INSTANTIATE_TEST_SUITE_P(Flavour, Honest, ::testing::Values(Sanitize::none, Sanitize::address, Sanitize::race),
                         [](const auto& i) { return std::string(i.param == Sanitize::none ? "none" : i.param == Sanitize::address ? "address" : "race"); });

}  // namespace
}  // namespace stitch::host::testing
