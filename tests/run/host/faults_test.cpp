// Planted faults: each program must be stopped, and the report must name the line marked with its number. All faults of a
// flavour are in one source, chosen by the program's argument, so that there is one compile per flavour.

#include <gmock/gmock.h>

#include <algorithm>

#include "run/host/host_program.h"
#include "run/host/report.h"

namespace stitch::host::testing {
namespace {

constexpr const char* kSource = R"cuda(
#include <cuda_runtime.h>
#include <cstdlib>
#include <cstring>
__global__ void global_oob(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) x[i] = 1;  // @global
}
__global__ void static_oob(float* y, int k) { __shared__ float a[32]; __shared__ float b[32];
  a[threadIdx.x] = b[threadIdx.x] = 1; __syncthreads();
  float* p = a;
  y[threadIdx.x] = p[threadIdx.x + k];  // @static
}
__global__ void dynamic_oob(float* y) { extern __shared__ float s[];
  s[threadIdx.x + 1] = 1;  // @dynamic
  y[threadIdx.x] = s[threadIdx.x];
}
__global__ void missing_barrier(float* y) { __shared__ float s[64];
  s[threadIdx.x] = threadIdx.x;  // @race_first
  y[threadIdx.x] = s[63 - threadIdx.x];  // @race
}
__global__ void missing_second_barrier(float* y) { __shared__ float s[64];
  for (int i = 0; i < 2; ++i) {
    s[threadIdx.x] = i;  // @war
    __syncthreads();
    y[threadIdx.x] += s[63 - threadIdx.x];  // @war_first
  }
}
__global__ void missing_syncwarp(float* y) { __shared__ float s[32];
  s[threadIdx.x] = threadIdx.x; __syncwarp();
  y[threadIdx.x] = s[31 - threadIdx.x];  // @warp_first
  s[threadIdx.x] = 2;  // @warp_race
  __syncwarp(); y[threadIdx.x] += s[31 - threadIdx.x];
}
__global__ void global_race(float* y) {
  y[0] += threadIdx.x;  // @global_race
}
__global__ void block_race(float* y) { if (threadIdx.x == 0)
  y[3] = blockIdx.x;  // @block_race
}
__global__ void uninitialised(float* y) { __shared__ float s[64];
  if (threadIdx.x < 32) s[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];  // @uninitialised
}
__global__ void wrong_mask(int* y) { int v = threadIdx.x; if (threadIdx.x < 20)
  v = __shfl_down_sync(0xffff, v, 1);  // @mask_caller
  y[threadIdx.x] = v;
}
__global__ void divergent_shuffle(int* y) { int v = threadIdx.x; if (threadIdx.x < 16)
  v = __shfl_xor_sync(0xffffffff, v, 1);  // @mask_missing
  __syncthreads(); y[threadIdx.x] = v;
}
__global__ void exited_source(int* y) { if (threadIdx.x >= 30) return;
  y[threadIdx.x] =
      __shfl_down_sync(0xffffffff, threadIdx.x, 4);  // @mask_exited
}
__global__ void divergent_barrier(float* y) { __shared__ float s[64]; s[threadIdx.x] = 1;
  if (threadIdx.x < 16)
    __syncthreads();  // @barrier_first
  y[threadIdx.x] = s[0];
  __syncthreads();  // @barrier
}
__global__ void misaligned(float* y) { float4* p = reinterpret_cast<float4*>(y + 1);
  float4 v = p[threadIdx.x];  // @misaligned
  y[0] = v.x;
}
__global__ void local_oob(float* y, int n) { float a[4] = {1, 2, 3, 4};
  y[0] = a[n];  // @local
}
int main(int, char** v) {
  float* y; cudaMalloc(&y, 256 * sizeof(float)); cudaMemset(y, 0, 1024);
  const char* w = v[1];
  if (!strcmp(w, "global")) global_oob<<<2, 128>>>(y, 256), global_oob<<<3, 128>>>(y, 256);
  if (!strcmp(w, "static")) static_oob<<<1, 32>>>(y, 4);
  if (!strcmp(w, "dynamic")) dynamic_oob<<<1, 32, 32 * sizeof(float)>>>(y);
  if (!strcmp(w, "race")) missing_barrier<<<1, 64>>>(y);
  if (!strcmp(w, "war")) missing_second_barrier<<<1, 64>>>(y);
  if (!strcmp(w, "warp_race")) missing_syncwarp<<<1, 32>>>(y);
  if (!strcmp(w, "global_race")) global_race<<<1, 64>>>(y);
  if (!strcmp(w, "block_race")) block_race<<<4, 64>>>(y);
  if (!strcmp(w, "uninitialised")) uninitialised<<<1, 64>>>(y);
  if (!strcmp(w, "mask_caller")) wrong_mask<<<1, 32>>>((int*)y);
  if (!strcmp(w, "mask_missing")) divergent_shuffle<<<1, 32>>>((int*)y);
  if (!strcmp(w, "mask_exited")) exited_source<<<1, 32>>>((int*)y);
  if (!strcmp(w, "barrier")) divergent_barrier<<<1, 64>>>(y);
  if (!strcmp(w, "misaligned")) misaligned<<<1, 4>>>(y);
  if (!strcmp(w, "local")) local_oob<<<1, 1>>>(y, 5);
  return 0;
}
)cuda";

int line_of(const std::string& mark) {
  const std::string source = kSource;
  const size_t at = source.find("// @" + mark + "\n");
  return at == std::string::npos ? -1 : static_cast<int>(std::count(source.begin(), source.begin() + static_cast<long>(at), '\n')) + 1;
}

struct Planted {
  const char* name;
  const char* kind;
  Sanitize flavour;
  const char* other = "";  // mark of the other line
};

// One build per flavour for the whole suite run; each case runs the program once.
void check(const Built& built, const Planted& p) {
  SCOPED_TRACE(p.name);
  const RunOutcome r = run(built, p.flavour, {p.name});
  EXPECT_EQ(r.process.exit_code, kFaultExit) << r.process.err;
  const auto faults = read_faults(r.report, r.process.err);
  ASSERT_TRUE(faults.has_value()) << faults.error().message;
  ASSERT_FALSE(faults->empty()) << r.process.err;
  const Fault& f = faults->front();
  EXPECT_EQ(f.kind, p.kind) << to_string(f);
  const std::string lines = to_string(f) + "\n" + r.process.err;
  if (f.kind == "race") {  // whichever of the two accesses ran last is the one that is reported
    EXPECT_EQ(std::minmax(f.line, f.other_line), std::minmax(line_of(p.name), line_of(p.other))) << lines;
  } else {
    EXPECT_EQ(f.line, line_of(p.name)) << lines;
    if (*p.other) {
      EXPECT_EQ(f.other_line, line_of(p.other)) << lines;
    }
  }
  EXPECT_EQ(fs::path(f.file).filename(), "program.cu") << to_string(f);
  EXPECT_TRUE(f.block && f.thread) << to_string(f);
  EXPECT_FALSE(f.kernel.empty());
}

void check_all(Sanitize flavour, const std::vector<Planted>& planted) {
  auto folder = TempFolder::create("host_faults");
  ASSERT_TRUE(folder.has_value());
  const Built built = build(folder->path(), kSource, flavour);
  ASSERT_EQ(built.problem, "");
  for (const Planted& p : planted) check(built, p);
}

TEST(Faults, Address) {
  const auto f = Sanitize::address;
  check_all(f, {{"global", "out_of_bounds", f}, {"static", "out_of_bounds", f}, {"dynamic", "out_of_bounds", f},
                {"misaligned", "misaligned", f}, {"local", "out_of_bounds", f}, {"barrier", "barrier_divergence", f, "barrier_first"}});
}

TEST(Faults, Race) {
  const auto f = Sanitize::race;
  check_all(f, {{"race", "race", f, "race_first"}, {"war", "race", f, "war_first"}, {"warp_race", "race", f, "warp_first"},
                {"global_race", "race", f, "global_race"}, {"block_race", "race", f, "block_race"},
                {"uninitialised", "uninitialised_shared", f}, {"mask_caller", "bad_shuffle_mask", f}});
}

TEST(Faults, WithoutSanitizer) {
  const auto f = Sanitize::none;
  check_all(f, {{"mask_caller", "bad_shuffle_mask", f}, {"mask_missing", "bad_shuffle_mask", f},
                {"mask_exited", "bad_shuffle_mask", f}, {"barrier", "barrier_divergence", f, "barrier_first"}});
}

}  // namespace
}  // namespace stitch::host::testing
