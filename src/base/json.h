#pragma once
// The one JSON type of the project. Include this forward declaration in headers and base/json_full.h in .cpp files.
#include <nlohmann/json_fwd.hpp>

namespace stitch {
using Json = nlohmann::ordered_json;
}
