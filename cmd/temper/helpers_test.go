package main

import (
	"temper/internal/config"
)

// place is where a command without flags works.
func place() *config.Process {
	p := config.DefaultProcess()
	return &p
}
