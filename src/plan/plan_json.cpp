#include <charconv>

#include "base/files.h"
#include "base/json_full.h"
#include "base/json_schema.h"
#include "base/json_util.h"
#include "ir/ops.h"
#include "plan/kinds.h"
#include "plan/plan.h"
#include "plan/task_io.h"

namespace stitch::plan {
namespace {

using ir::Graph;
using ir::ValueRef;

std::string to_text(const Graph& g, ValueRef v) {
  return g.at(v).types.size() > 1 ? fmt::format("%{}.{}", v.node, v.output) : fmt::format("%{}", v.node);
}

Json value_json(const Graph& g, ValueRef v) {
  const ir::TensorType& t = g.type_of(v);
  Json j{{"value", to_text(g, v)}};
  if (!g.at(v).name.empty()) j["name"] = g.at(v).name;
  j["dtype"] = std::string(ir::name_of(t.dtype));
  j["shape"] = t.shape;
  j["layout"] = "contiguous";
  return j;
}

Json task_json(const Graph& g, const Task& t) {
  Json inputs = Json::array(), outputs = Json::array();
  for (ValueRef v : t.inputs) inputs.push_back(value_json(g, v));
  for (ValueRef v : t.outputs) outputs.push_back(value_json(g, v));
  return Json{{"id", t.id},         {"name", t.name},     {"kind", std::string(name_of(t.kind))},
              {"nodes", t.nodes},   {"inputs", inputs},   {"outputs", outputs},
              {"why", t.why},       {"skill", t.skill},   {"bottleneck", t.bottleneck.empty() ? "none" : t.bottleneck},
              {"floor_us", t.floor_us}, {"floor", t.floor}, {"tolerance", t.tolerance}};
}

// The schema has already fixed the form "%N" or "%N.K".
ValueRef value_from_text(const std::string& text) {
  ValueRef v{0, 0};
  const char* end = text.data() + text.size();
  const auto node = std::from_chars(text.data() + 1, end, v.node);
  if (node.ec != std::errc{}) v.node = -1;
  if (node.ptr != end && std::from_chars(node.ptr + 1, end, v.output).ec != std::errc{}) v.output = -1;
  return v;
}

Result<Task> task_from_json(const Json& j, const TaskIo& io, size_t node_count) {
  Task t;
  t.id = j.at("id").get<std::string>();
  t.name = j.at("name").get<std::string>();
  STITCH_TRY(t.kind, kind_from_name(j.at("kind").get<std::string>()));
  for (const Json& m : j.at("nodes")) {
    const auto index = m.get<int64_t>();
    if (index < 0 || index >= static_cast<int64_t>(node_count))
      return fail(ErrorKind::bad_input, "Task {} names node %{}, but the graph has only {} nodes.", t.id, index, node_count);
    t.nodes.push_back(static_cast<int32_t>(index));
  }
  t.why = j.value("why", "");
  t.skill = j.value("skill", "");
  t.bottleneck = j.value("bottleneck", "none");
  t.floor_us = j.value("floor_us", 0.0);
  t.floor = j.value("floor", "");
  t.tolerance = j.value("tolerance", 0.0);
  io.fill(t);
  for (const auto& [key, own] : {std::pair{"inputs", &t.inputs}, std::pair{"outputs", &t.outputs}}) {
    if (!j.contains(key)) continue;
    std::vector<ValueRef> given;
    for (const Json& v : j.at(key)) given.push_back(value_from_text(v.at("value").get<std::string>()));
    *own = std::move(given);
  }
  return t;
}

Result<Json> schema() {
  STITCH_TRY(const std::string text, read_file(source_root() / "schemas" / "plan.schema.json"));
  return parse_json(text, "schemas/plan.schema.json");
}

}  // namespace

Json to_json(const Graph& g, const Plan& plan) {
  Json tasks = Json::array();
  for (const Task& t : plan.tasks) tasks.push_back(task_json(g, t));
  Json graph = Json::array();
  const std::string text = ir::print(g);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    graph.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return Json{{"format", "stitch-plan"},
              {"version", 1},
              {"program", plan.program},
              {"planner", plan.planner},
              {"device", plan.device},
              {"precision", std::string(hw::name_of(plan.precision))},
              {"floor_us", plan.floor_us},
              {"floor", plan.floor},
              {"host",
               {{"cuda_graph", plan.host.cuda_graph},
                {"streams", plan.host.streams},
                {"prepacked_weights", plan.host.prepacked_weights}}},
              {"risks", plan.risks},
              {"tasks", tasks},
              {"graph", graph}};
}

Result<Plan> from_json(const Graph& g, const Json& j) {
  STITCH_TRY(const Json rules, schema());
  STITCH_CHECK_OK(validate_json(rules, j));
  Plan plan;
  plan.program = j.at("program").get<std::string>();
  plan.planner = j.at("planner").get<std::string>();
  plan.device = j.at("device").get<std::string>();
  STITCH_TRY(plan.precision, hw::precision_class_from_name(j.at("precision").get<std::string>()));
  plan.floor_us = j.value("floor_us", 0.0);
  plan.floor = j.value("floor", "");
  plan.risks = j.value("risks", std::vector<std::string>{});
  const Json& host = j.at("host");
  plan.host.cuda_graph = host.at("cuda_graph").get<bool>();
  plan.host.streams = host.value("streams", std::vector<std::vector<std::string>>{});
  plan.host.prepacked_weights = host.value("prepacked_weights", std::vector<std::string>{});
  const TaskIo io(g);
  for (const Json& t : j.at("tasks")) {
    STITCH_TRY(Task task, task_from_json(t, io, g.nodes.size()));
    plan.tasks.push_back(std::move(task));
  }
  STITCH_CHECK_OK(check(g, plan));
  return plan;
}

}  // namespace stitch::plan
