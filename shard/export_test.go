package shard

import (
	"github.com/zeebo/xxh3"

	"hsx/format"
	"hsx/internal/atomicfile"
)

// WithFS makes a writer use another file system.
func WithFS(o Options, fs atomicfile.FS) Options {
	o.fs = fs
	return o
}

// MergeWithFS makes a merge use another file system.
func MergeWithFS(o MergeOptions, fs atomicfile.FS) MergeOptions {
	o.fs = fs
	return o
}

// DecodeManifest reads the bytes of a manifest.
func DecodeManifest(data []byte) (*Manifest, error) { return decodeManifest(data) }

// EncodeManifest is what DecodeManifest reads.
func EncodeManifest(m *Manifest) ([]byte, error) { return m.encode() }

// Seal completes a manifest's body, everything before its last member, with the seal
// that its bytes call for.
func Seal(body []byte) []byte {
	sum := Digest(xxh3.Hash128(body).Bytes())
	return append(body[:len(body):len(body)], sealKey+sum.String()+"\"\n}\n"...)
}

// Packer is what a compressed shard does with the states of a batch before it hashes and
// writes what comes out.
func Packer() (pack func(states []format.Rows) error, closePacker func() error) {
	p := new(packer)
	return func(states []format.Rows) error {
		_, err := p.pack(states, nil)
		return err
	}, p.close
}
