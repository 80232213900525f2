#pragma once
// Stand-in for CUDA's header of the same name on the host target. See docs/host-target.md.

#include "emu/core.h"

#include "emu/api.h"
#include "emu/atomics.h"
#include "emu/math.h"
#include "emu/warp.h"
