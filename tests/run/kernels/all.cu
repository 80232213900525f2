// Every kernel family's test in one program: one compile, one run. "all NAME" runs one family.
#define STITCH_USE_CUBLASLT 1
#define STITCH_USE_CUDNN 1
#include "stitch/runtime_impl.h"
#include "stitch/vendor_impl.h"

#include "vendor.cu"
#include "convolution.cu"
#include "attention.cu"
#include "norm.cu"
#include "order.cu"
#include "recurrent.cu"

#include <cstring>

int main(int argc, char** argv) {
  const struct {
    const char* name;
    void (*run)();
  } families[] = {{"vendor", vendor_test::run}, {"convolution", convolution_test::run}, {"attention", attention_test::run}, {"norm", norm_test::run}, {"order", order_test::run}, {"recurrent", recurrent_test::run}};
  for (const auto& family : families)
    if (argc < 2 || std::strcmp(argv[1], family.name) == 0) family.run();
  if (failures == 0) std::printf("all passed\n");
  return failures == 0 ? 0 : 1;
}
