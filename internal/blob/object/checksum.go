package object

import (
	"encoding/base64"
	"encoding/binary"
	"hash"

	"github.com/minio/crc64nvme"
)

// NewChecksum returns an empty CRC-64/NVME.
func NewChecksum() hash.Hash64 { return crc64nvme.New() }

// EncodeChecksum is the form in which S3 writes a sum: base64 of its eight bytes, big-endian.
func EncodeChecksum(sum hash.Hash64) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, sum.Sum64()))
}

// ValidChecksum reports whether text has that form.
func ValidChecksum(text string) bool {
	raw, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(raw) == 8
}
