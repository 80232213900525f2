#include "code/skills/skills.h"

#include "code/skill.h"

namespace stitch::code {

const std::vector<Skill>& skills() {
  static const std::vector<Skill> list = {
      transpose_skill(),
      pointwise_skill(),
      norm_skill(),
      softmax_columns_skill(),
      reduction_skill(),
      gemm_skill(),
      convolution_skill(),
      attention_skill(),
      recurrent_skill(),
      pool_skill(),
      scan_skill(),
      sort_skill(),
      scatter_skill(),
      generic_skill(),
  };
  return list;
}

Result<TaskSource> write_task(const TaskContext& context) {
  std::string refusals;
  const std::string& wanted = context.task.skill;
  for (const Skill& skill : skills()) {
    if (wanted.empty() ? context.generic_only && skill.special : skill.name != wanted) continue;
    if (!skill.takes(context)) continue;
    auto source = skill.write(context);
    if (source) {
      source->task = context.task.id;
      if (source->skill.empty()) source->skill = std::string(skill.name);
      return source;
    }
    if (source.error().kind != ErrorKind::unsupported) return source;
    refusals += fmt::format("{}: {}\n", skill.name, source.error().message);
  }
  if (!wanted.empty()) {
    std::string names;
    for (const Skill& s : skills()) names += (names.empty() ? "" : ", ") + std::string(s.name);
    return tl::make_unexpected(Error{ErrorKind::bad_input, fmt::format("Task {} of the plan asks for the skill \"{}\", which cannot write it; leave \"skill\" out, or name another of: {}.",
                                                                       context.task.name, wanted, names), refusals});
  }
  if (context.generic_only) return write_task({context.graph, context.task, context.precision});  // better special than none
  auto error = Error{ErrorKind::unsupported, fmt::format("No skill can write task {}; this op or dtype has no code yet.", context.task.name), refusals};
  return tl::make_unexpected(std::move(error));
}

}  // namespace stitch::code
