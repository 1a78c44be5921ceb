// Package device opens the accelerator that a graph runs on, by a name given at
// run time, and decides how the tensors of a network are sharded over several devices
// of one host.
//
//	go                         the pure Go backend: every build has it
//	xla:cuda xla:rocm xla:cpu  XLA, through a PJRT plugin found by its name
//	xla:/abs/plugin.so         XLA, through that plugin
//
// Options of a backend follow after commas, as in "xla:cuda,memory_fraction=0.9"
// or "go:parallelism=4".
//
// XLA is reached through cgo and a shared library, so the build tag xla compiles it
// in; without it the binary is pure Go and builds with CGO_ENABLED=0. No library is
// ever downloaded.
//
// Invariant: Open either returns a backend with at least one device or an error
// of one line that names the missing part and the places of the search.
package device
