#include "run/gpu_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

namespace stitch::run {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

struct Home {
  TempFolder folder = std::move(*TempFolder::create("gpu-turn"));
  Home() { setenv("STITCHCUDA_HOME", folder.path().c_str(), 1); }
  ~Home() { unsetenv("STITCHCUDA_HOME"); }
};

TEST(GpuMemoryTurn, HolderAndHolderFitTogetherOrWait) {
  Home home;
  auto half = GpuMemoryTurn::take("0", 16 * kGiB, 7 * kGiB);
  ASSERT_TRUE(half);
  EXPECT_EQ(half->pieces(), 2u);
  ASSERT_TRUE(GpuMemoryTurn::take("0", 16 * kGiB, 8 * kGiB));  // given back at once
  std::atomic<bool> served = false;
  std::thread other([&] {
    auto most = GpuMemoryTurn::take("0", 16 * kGiB, 12 * kGiB);
    EXPECT_TRUE(most);
    served = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(served);
  ASSERT_TRUE(GpuMemoryTurn::take("1", 16 * kGiB, 16 * kGiB));  // another GPU is another queue
  half = fail(ErrorKind::internal, "released");
  other.join();
  EXPECT_TRUE(served);
}

TEST(GpuMemoryTurn, ARequestBeyondTheGpuTakesAllOfIt) {
  Home home;
  auto all = GpuMemoryTurn::take("0", 16 * kGiB, 100 * kGiB);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->pieces(), 4u);
}

}  // namespace
}  // namespace stitch::run
