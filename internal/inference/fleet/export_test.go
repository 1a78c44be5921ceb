package fleet

// Known is the number of trajectories that the fleet has not forgotten.
func (f *Fleet) Known() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.state.trajectories)
}
