#include "suite/gpus.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace stitch::suite {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(GpuSlots, TheSumStaysInTheBudgetAndALargeJobIsAlone) {
  GpuSlots slots({{"0", "a", 100 * kGiB}, {"1", "b", 100 * kGiB}}, 3);
  const uint64_t budget = slots.budget(0);
  EXPECT_LT(budget, 100 * kGiB);
  EXPECT_GT(budget, 50 * kGiB);
  std::array<std::atomic<uint64_t>, 2> used{};
  std::array<std::atomic<int>, 2> jobs{};
  std::atomic<int> broken{0}, done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const uint64_t bytes = (i + t) % 7 == 0 ? 500 * kGiB : static_cast<uint64_t>(1 + (i * 13 + t * 5) % 60) * kGiB;
        const size_t gpu = slots.acquire(bytes);
        const uint64_t sum = used[gpu] += bytes;
        const int n = ++jobs[gpu];
        if (n > 3 || (sum > budget && n > 1)) ++broken;
        std::this_thread::yield();
        used[gpu] -= bytes;
        --jobs[gpu];
        slots.release(gpu, bytes);
        ++done;
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(broken, 0);
  EXPECT_EQ(done, 1600);
}

TEST(GpuSlots, TakesTheEmptierGpu) {
  GpuSlots slots({{"0", "a", 100 * kGiB}, {"1", "b", 100 * kGiB}}, 4);
  const size_t first = slots.acquire(30 * kGiB), second = slots.acquire(10 * kGiB);
  EXPECT_NE(first, second);
  EXPECT_EQ(slots.acquire(kGiB), second);
}

}  // namespace
}  // namespace stitch::suite
