// Package graphcache keeps compiled programs of XLA plugins on disk, so that a process that
// starts again loads what an earlier one has compiled, and counts what a process compiles.
// It stands between go-xla and the plugin: every program that a plugin compiles goes through
// it, of whatever part of the tree.
//
// An entry is found by all that decides what the compiler makes: the text of the program, the
// options of the compilation with the mesh and the devices, the bytes of the plugin, the
// device, XLA's flags, and on a CPU the CPU's features.
//
// Invariant: what a call of a program yields does not depend on whether the program was
// compiled or loaded. An entry that is damaged, or that somebody else has written, counts as
// missing.
package graphcache
