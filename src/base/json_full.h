#pragma once
// The full JSON library (slow to compile): for .cpp files, and headers that hold a Json by value.
#include <nlohmann/json.hpp>

#include "base/json.h"
