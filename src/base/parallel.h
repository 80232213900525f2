#pragma once
#include <cstdint>
#include <functional>

namespace stitch {

int hardware_threads();  // usable cores (affinity mask, container quota), at least 1

// Calls body(begin, end) on disjoint chunks that cover [0, n), on up to hardware_threads() threads; `grain` is the
// smallest chunk worth a thread. Returns when all are done; an exception of a body is rethrown here.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace stitch
