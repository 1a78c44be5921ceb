// Package kernels describes the properties that decide the last bits of a computation on this
// machine, and chooses the kernels of the CPU backend.
//
// The backend has each of its kernels twice, for AVX2 and for AVX-512. The two add in
// different orders: in panels of 128 or 192 terms, in 8 or 16 lanes. So a run has different
// last bits on another kind of machine. With Portable every computation uses the kernels for
// AVX2, which all x86 CPUs of the last ten years have.
//
// The package decides which kernels the backend calls, through trainer/gomlxhooks. It knows no
// graph and no network.
//
// Invariant: a computation runs with the kernels that it has asked for.
package kernels
