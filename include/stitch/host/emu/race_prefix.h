#pragma once
// Included before everything else in a candidate's source of the race flavour: the C library's copies are not instrumented
// by the compiler, so they are sent to watched versions (rt_race_hooks.h). The runtime itself keeps the plain ones.
extern "C" {
void* memcpy(void*, const void*, unsigned long) noexcept __asm__("stitch_emu_memcpy");
void* memmove(void*, const void*, unsigned long) noexcept __asm__("stitch_emu_memmove");
void* memset(void*, int, unsigned long) noexcept __asm__("stitch_emu_memset");
}
