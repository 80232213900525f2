#pragma once
// The `.stitch` bundle: a directory that holds a captured program and is readable without PyTorch.
//
//   program.json          format version, graph (text form, one line per array entry), inputs, weights, outputs,
//                         precision flags of the reference, where it came from
//   weights.safetensors   parameters, buffers and lifted constants by name; absent when they come from a generator
//   cases/NNN.safetensors inputs "input.<name>" and, where the reference ran, "expected.<output name>"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json_full.h"
#include "base/result.h"
#include "ir/graph.h"
#include "ir/tensor.h"

namespace stitch::ir {

inline constexpr int kBundleVersion = 1;

// How to make a tensor that is too large to store. `kind`: "normal" (mean a, stddev b), "uniform" ([a, b)),
// "randint" ([a, b)), "constant" (a).
struct Generator {
  std::string kind;
  double a = 0, b = 1;
  uint64_t seed = 0;
  std::string structure;  // of the last two dims: "" (none), "lower", "upper", "symmetric"; "rows": positive rows that sum to 1
};

struct TensorInfo {
  std::string name;
  TensorType type;
  std::optional<Generator> generator;
  bool parameter = false;  // weights: a trained parameter; buffers and lifted constants may hold infinities (masks)
  bool random = false;     // inputs: drawn by forward() itself, not among its arguments
};

// Flags that decide in which precision the reference computes (PyTorch's defaults here).
struct PrecisionFlags {
  bool allow_tf32_matmul = false;
  bool allow_tf32_conv = true;
};

struct Origin {
  std::string file;      // as the user gave it; "" for a hand-written program
  std::string sha256;    // of the file's bytes
  std::string kind;      // "kernelbench", "callable", "pt2", "hand"
  std::string torch_version;
  int64_t seed = 0;      // seed under which weights and inputs were drawn
};

struct Case {
  std::string name;                  // "000"
  std::vector<Tensor> inputs;        // in graph input order
  std::vector<Tensor> expected;      // in graph output order; empty where the reference did not run
};

struct Bundle {
  std::string name;
  std::string mode;                  // "eval" or "train"
  Graph graph;
  std::vector<TensorInfo> inputs;    // in graph order
  std::vector<TensorInfo> weights;   // in graph order
  PrecisionFlags precision;
  Origin origin;
  Json input_spec, output_spec;      // how forward()'s arguments and results nest; see docs/bundle.md
  std::vector<std::string> case_names;
  std::filesystem::path folder;      // where it was read from
  bool has_weights = false;          // weights.safetensors is there
};

std::vector<TensorType> types_of(const std::vector<TensorInfo>&);
std::vector<TensorType> output_types(const Bundle&);  // in graph order

// Reads and checks program.json (version, graph rules, declared sizes against files). Tensor bytes are not read.
Result<Bundle> read_bundle(const std::filesystem::path& folder);
// Tensor data, in graph order. Checks names, dtypes, shapes and file length. NaN in a weight or Inf in a parameter is an error
// naming the tensor and the first bad index. Weights and inputs with a generator that are not stored are generated.
Result<std::vector<Tensor>> read_weights(const Bundle&);
Result<Case> read_case(const Bundle&, const std::string& name);
// Writes a complete bundle next to its place and renames it there; nothing half-written stays on failure. Replaces a bundle, but
// refuses to replace any other folder or file. The bundle is checked as read_bundle would; with no `weights` it has none.
Status write_bundle(const std::filesystem::path& folder, const Bundle&, const std::vector<Tensor>& weights,
                    const std::vector<Case>& cases);

}  // namespace stitch::ir
