#include "code/skills/skills.h"

#include "code/skill.h"

namespace stitch::code {

const std::vector<Skill>& skills() {
  static const std::vector<Skill> list = {
      pointwise_skill(),
      reduction_skill(),
      generic_skill(),
  };
  return list;
}

Result<TaskSource> write_task(const TaskContext& context) {
  std::string refusals;
  for (const Skill& skill : skills()) {
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
  auto error = Error{ErrorKind::unsupported, fmt::format("No skill can write task {}; this op or dtype has no code yet.", context.task.name), refusals};
  return tl::make_unexpected(std::move(error));
}

}  // namespace stitch::code
