// Package graphcache keeps compiled programs of XLA plugins on disk, so that a restarted
// process loads them, and counts the programs that a process compiles. It stands between
// go-xla and the plugin: every program of every package goes through it.
//
// The key of an entry has everything that decides the compiled code: the text of the program,
// the options of the compilation with the mesh and the devices, the bytes of the plugin, the
// device, XLA's flags, and on a CPU the CPU's features.
//
// Invariant: the results of a program do not depend on whether it was compiled or loaded. A
// damaged entry, or one of another user, counts as missing.
package graphcache
