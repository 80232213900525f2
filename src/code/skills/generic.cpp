// The fallback that writes every task: a task of several nodes is cut into pieces that other skills take, and a single
// node becomes a plain kernel from its definition, one thread per result element.
#include <algorithm>
#include <map>

#include "code/memory.h"
#include "code/skills/common.h"
#include "code/skills/skills.h"
#include "ir/ops.h"
#include "plan/task_io.h"

namespace stitch::code {
namespace {

using ir::ValueRef;

bool takes(const TaskContext&) { return true; }

// Runs of nodes that are cheap element by element stay together; everything else stands alone.
std::vector<std::vector<int32_t>> pieces_of(const TaskContext& context) {
  std::vector<std::vector<int32_t>> pieces;
  bool open = false;
  for (int32_t n : context.task.nodes) {
    const bool cheap = is_inline(context.graph.nodes[static_cast<size_t>(n)]);
    if (!open || !cheap) pieces.emplace_back();
    pieces.back().push_back(n);
    open = cheap;
  }
  return pieces;
}

plan::Task piece_task(const TaskContext& context, const plan::TaskIo& io, std::vector<int32_t> nodes) {
  plan::Task piece;
  piece.id = context.task.id;
  piece.nodes = std::move(nodes);
  piece.kind = plan::TaskKind::generic;
  const ir::Node& last = context.graph.nodes[static_cast<size_t>(piece.nodes.back())];
  piece.name = fmt::format("{}_{}_{}", context.task.id, last.op->name, piece.nodes.back());
  io.fill(piece);
  return piece;
}

// The code of the pieces; a run that no skill takes as a whole is cut into its nodes.
Status write_pieces(const TaskContext& context, const plan::TaskIo& io, std::vector<plan::Task>& tasks, std::vector<TaskSource>& sources) {
  for (std::vector<int32_t>& nodes : pieces_of(context)) {
    std::vector<plan::Task> attempt{piece_task(context, io, nodes)};
    if (nodes.size() > 1 && nodes.size() < context.task.nodes.size()) {
      if (auto source = write_task({context.graph, attempt[0], context.precision, context.generic_only})) {
        tasks.push_back(std::move(attempt[0]));
        sources.push_back(std::move(*source));
        continue;
      }
    }
    for (int32_t n : nodes) {
      plan::Task single = piece_task(context, io, {n});
      STITCH_TRY(TaskSource source, write_task({context.graph, single, context.precision, context.generic_only}));
      tasks.push_back(std::move(single));
      sources.push_back(std::move(source));
    }
  }
  return {};
}

Result<TaskSource> write_split(const TaskContext& context) {
  const plan::TaskIo io(context.graph);
  std::vector<plan::Task> tasks;
  std::vector<TaskSource> sources;
  STITCH_CHECK_OK(write_pieces(context, io, tasks, sources));

  // Intermediates and the pieces' own scratch share this task's scratch by lifetime.
  const auto is_result = [&](ValueRef v) { return std::find(context.task.outputs.begin(), context.task.outputs.end(), v) != context.task.outputs.end(); };
  std::map<ValueRef, size_t> stored;
  std::vector<Lifetime> lifetimes;
  for (size_t step = 0; step < tasks.size(); ++step) {
    const int now = static_cast<int>(step);
    for (ValueRef v : tasks[step].inputs)
      if (auto it = stored.find(v); it != stored.end()) lifetimes[it->second].last = now;
    for (ValueRef v : tasks[step].outputs) {
      if (is_result(v)) continue;
      stored[v] = lifetimes.size();
      lifetimes.push_back({static_cast<size_t>(ir::bytes_of(context.graph.type_of(v))), now, now});
    }
  }
  const size_t first_scratch = lifetimes.size();
  for (size_t step = 0; step < tasks.size(); ++step) lifetimes.push_back({sources[step].scratch_bytes, static_cast<int>(step), static_cast<int>(step)});
  const Packing packing = pack(lifetimes);

  TaskSource out;
  out.skill = "generic";
  out.scratch_bytes = packing.total;
  std::string body;
  if (!lifetimes.empty()) body += "  char* const memory = static_cast<char*>(scratch);\n";
  for (const auto& [v, piece] : stored)
    body += fmt::format("  auto* const {} = reinterpret_cast<{}*>(memory + {});\n", context.parameter(v), cpp_type(context.graph.type_of(v).dtype),
                        packing.offsets[piece]);
  for (size_t step = 0; step < tasks.size(); ++step) {
    out.kernels += sources[step].kernels + "\n";
    out.uses_cublaslt |= sources[step].uses_cublaslt;
    out.uses_cudnn |= sources[step].uses_cudnn;
    out.headers.insert(out.headers.end(), sources[step].headers.begin(), sources[step].headers.end());
    std::string arguments;
    for (ValueRef v : tasks[step].inputs) arguments += context.parameter(v) + ", ";
    for (ValueRef v : tasks[step].outputs) arguments += context.parameter(v) + ", ";
    body += fmt::format("  STITCH_TRY_FAILURE({}({}memory + {}, vendor, stream));\n", tasks[step].name, arguments, packing.offsets[first_scratch + step]);
  }
  out.kernels += fmt::format("{}{} {{\n{}  return nullptr;\n}}\n", task_comment(context, "generic"), context.signature(), body);
  return out;
}

Result<TaskSource> write(const TaskContext& context) {
  if (context.task.nodes.size() > 1) return write_split(context);
  return elementwise_task(context, "generic", true);
}

}  // namespace

Skill generic_skill() { return {"generic", takes, write}; }

}  // namespace stitch::code
