// Package kernels says what decides the last bits of a computation on this machine,
// and chooses the kernels of the CPU backend.
//
// The backend has each of its kernels twice, for AVX2 and for AVX-512. They add in
// other orders: in panels of 128 or 192 terms, in 8 or 16 lanes. So a run has other last
// bits on another kind of machine. With Portable every computation takes the kernels for
// AVX2, which all x86 CPUs of the last ten years have.
//
// The package owns the hooks of the backend through which it finds its kernels. It knows
// no graph and no network.
//
// Invariant: while a computation is under way, the kernels in force are those that it
// has asked for.
package kernels
