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

INSTANTIATE_TEST_SUITE_P(Flavour, Honest, ::testing::Values(Sanitize::none, Sanitize::address, Sanitize::race),
                         [](const auto& i) { return std::string(i.param == Sanitize::none ? "none" : i.param == Sanitize::address ? "address" : "race"); });

}  // namespace
}  // namespace stitch::host::testing
