#pragma once
// suite.json and suite.md.

#include <filesystem>
#include <string>

#include "base/json.h"
#include "suite/stages.h"

namespace stitch::suite {

// {"version", "suite", "summary": {...}, "rows": [...]}, as schemas/suite.schema.json says.
Json to_json(const Suite&);
// The same for a reader, from what to_json gave: a summary, then a line a problem.
std::string to_markdown(const Suite&, const Json&);

}  // namespace stitch::suite
