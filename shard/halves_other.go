//go:build !amd64

package shard

func split(hi, lo, values []byte) { splitWords(hi, lo, values) }

func join(values, hi, lo []byte) { joinWords(values, hi, lo) }
