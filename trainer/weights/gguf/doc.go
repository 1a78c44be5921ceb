// Package gguf owns the file format of llama.cpp: it writes a network with its
// tokenizer as one file. It reads none.
//
// Invariant: the file holds the values of the weights that it was given, rounded once
// to its type; with F32 it is the same network to the last bit.
package gguf
