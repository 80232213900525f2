#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace stitch {

namespace {

// A container's share of the machine (cgroup v2: "QUOTA PERIOD", or "max"), rounded up: 128 compilers on 8 cores' worth of time
// would only run out of memory. 0 = no limit known.
int quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double allowed = 0, period = 0;
  if (!(file >> allowed >> period) || allowed <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>(std::min(1e6, allowed / period + 0.999)));
}

}  // namespace

int hardware_threads() {
  static const int limit = quota();
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, limit > 0 ? std::min(limit, cores) : cores);
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
  int64_t started = 1;
  try {
    for (; started < chunks; ++started) threads.emplace_back(work, started);
  } catch (const std::system_error&) {
    // No more threads on this machine: the rest is done here.
  }
  work(0);
  for (int64_t c = started; c < chunks; ++c) work(c);
  threads.clear();  // joins
  if (failure) std::rethrow_exception(failure);
}

}  // namespace stitch
