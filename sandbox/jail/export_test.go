package jail

// WithMode returns cfg restricted to one mode, to test the weaker ones anywhere.
func (c Config) WithMode(mode Mode) Config {
	c.modes = []Mode{mode}
	return c
}
