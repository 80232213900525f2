#pragma once
// The plan: which nodes are computed together, in what order, and how the host drives them. Written as plan.json by
// the schema in src/plan/plan.schema.json; every planner (built-in, LLM, person) produces this and passes check().

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "hw/device.h"
#include "ir/graph.h"

namespace stitch::plan {

// What a task computes. kinds.h has the table of their names and of the nodes they need.
enum class TaskKind {
  pointwise,    // pointwise and movement nodes of one iteration space, several outputs allowed
  row,          // reductions / softmax / norms over trailing dims with pointwise prologue and epilogue
  column,       // softmax over other dims
  reduction,    // general reduction (any dims), with pointwise prologue and epilogue
  norm,         // norms over other than trailing dims
  gemm,         // matmul, linear, addmm, baddbmm with pointwise epilogue
  convolution,  // convolution with pointwise epilogue
  attention,
  recurrent,
  pool,         // pooling, resampling
  scan,
  sort,         // sort, topk
  scatter,      // writes at indices
  generic,      // one node, plain kernel from the node's definition
  alias,        // no work: view of another value (memory planner resolves it)
};
std::string_view name_of(TaskKind);

struct Task {
  std::string id;                    // "t03"
  std::string name;                  // readable: "t03_add_layer_norm", unique, a C identifier
  TaskKind kind = TaskKind::generic;
  std::vector<int32_t> nodes;        // graph nodes covered, ascending
  std::vector<ir::ValueRef> inputs;  // values read from outside the task (weights and inputs included)
  std::vector<ir::ValueRef> outputs; // values other tasks or the program read
  std::string why;                   // what is fused, and why it stops there
  std::string skill;                 // who writes it: a name of code::skills(); "" leaves the choice to the Coder
  std::string bottleneck;            // expected: "memory", "compute", "launch"
  double floor_us = 0;
  std::string floor;                 // how floor_us comes about, with its figures
  double tolerance = 0;              // acceptance: relative error against fp64
};

struct HostPlan {
  bool cuda_graph = true;
  std::vector<std::vector<std::string>> streams;  // task ids per stream; one list = no overlap
  std::vector<std::string> prepacked_weights;     // weights transformed once at create time
};

struct Plan {
  std::string program;
  std::string planner;               // "builtin", "llm:<model>", "mailbox"
  std::string device;
  hw::PrecisionClass precision = hw::PrecisionClass::default_flags;
  HostPlan host;
  std::vector<Task> tasks;           // in execution order
  double floor_us = 0;               // whole program: external bytes and all arithmetic, as if one kernel
  std::string floor;
  std::vector<std::string> risks;
};

struct PlanOptions {
  hw::Device device;
  hw::PrecisionClass precision = hw::PrecisionClass::default_flags;
  bool fuse = true;  // false: one task per node, the fallback when a fused program fails
};

// The built-in planner: greedy fusion partition over the graph, roofline floor per task.
Result<Plan> plan_builtin(const ir::Graph&, const std::string& program_name, const PlanOptions&);

// Rules every plan must meet, whoever made it: every compute node ("input"/"weight" excepted) in exactly one task, tasks in dependency
// order, inputs/outputs complete and typed, names unique C identifiers, kinds fit the nodes. One sentence per breach.
Status check(const ir::Graph&, const Plan&);

Json to_json(const ir::Graph&, const Plan&);             // adds shapes, dtypes, layouts for the reader
Result<Plan> from_json(const ir::Graph&, const Json&);   // schema-checked, then check()ed

}  // namespace stitch::plan
