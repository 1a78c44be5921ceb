package memblob_test

import (
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/blobtest"
	"temper/internal/blob/memblob"
)

func TestConformance(t *testing.T) {
	blobtest.Run(t, func(*testing.T) blob.Store { return memblob.New() })
}
