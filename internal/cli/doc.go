// Package cli holds what every command line of Temper does alike: the execution of a
// command, the exit status of an error, the flags that say where things are, the log, and
// the screen of `temper up` with its scrolling lines above a block of services and runs. It
// has no commands and starts nothing.
//
// Invariant: exit status 2 is a mistake of the user, 1 a fault of the system. On a terminal
// no line of the block is wider than the terminal.
package cli
