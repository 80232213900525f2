#pragma once
// Reading and writing JSON without exceptions. `what` names the text for messages ("program.json").

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace stitch {

// Refuses nesting deeper than 200, a key given twice and objects of more than 50 000 members, and reports line and column
// of a mistake (the parser's own words are in the error's detail).
Result<Json> parse_json(std::string_view text, std::string_view what);

// indent -1: one line. Invalid UTF-8 is replaced, never thrown on.
std::string dump(const Json&, int indent = 2);

// Typed members of an object; the message names `what`, the key and the type needed.
Result<std::string> get_string(const Json&, std::string_view key, std::string_view what);
Result<int64_t> get_integer(const Json&, std::string_view key, std::string_view what);
Result<double> get_number(const Json&, std::string_view key, std::string_view what);
Result<bool> get_bool(const Json&, std::string_view key, std::string_view what);
// Pointers into the given value: valid as long as it is.
Result<const Json*> get_array(const Json&, std::string_view key, std::string_view what);
Result<const Json*> get_object(const Json&, std::string_view key, std::string_view what);

}  // namespace stitch
