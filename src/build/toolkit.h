#pragma once
// Where the CUDA toolkit is: a system installation, or the packages of the Python environment.

#include <filesystem>
#include <string>
#include <vector>

namespace stitch::build {

struct CudaToolkit {
  std::filesystem::path nvcc;                       // empty: no compiler
  std::string version;                              // "13.0"
  std::filesystem::path root;                       // folder above bin/
  std::vector<std::filesystem::path> include_dirs;  // cuda_runtime.h, cublasLt.h, cudnn.h
  std::vector<std::filesystem::path> library_dirs;  // libcudart, libcublasLt, libcudnn
};

// Looks once per process: $STITCHCUDA_NVCC alone where it is set (any name that is no program, such as "none", hides nvcc); else nvcc on PATH, $CUDA_HOME, /usr/local/cuda*, then the Python environment in data_home()/venv.
const CudaToolkit& find_cuda_toolkit();

// Full path of lib<stem>.so or its newest numbered form in the toolkit's folders; empty if there is none.
std::filesystem::path find_library(const CudaToolkit&, const std::string& stem);

}  // namespace stitch::build
