#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace stitch {

int hardware_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  const int64_t chunks = std::clamp<int64_t>(n / std::max<int64_t>(1, grain), 1, hardware_threads());
  if (chunks == 1) return body(0, n);
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&](int64_t c) {
    try {
      body(n * c / chunks, n * (c + 1) / chunks);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  for (int64_t c = 1; c < chunks; ++c) threads.emplace_back(work, c);
  work(0);
  threads.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

}  // namespace stitch
