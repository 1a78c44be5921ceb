package remote

import "time"

// SetPatience bounds the time of a body in tests.
func (s *Server) SetPatience(d time.Duration) { s.patience = d }
