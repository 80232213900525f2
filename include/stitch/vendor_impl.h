#pragma once
// The Vendor of the target being compiled. Included by exactly one source of a program: program.cpp, which defines
// before it what its tasks use, so that the other library is neither included nor linked:
//   #define STITCH_USE_CUBLASLT 1   // a task's TaskSource::uses_cublaslt
//   #define STITCH_USE_CUDNN 1      // a task's TaskSource::uses_cudnn

#include <cuda_runtime.h>

#ifdef STITCH_HOST_EMULATOR
#include "stitch/vendor_host.h"
#else
#include "stitch/vendor_cuda.h"
#endif
