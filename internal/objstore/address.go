package objstore

import (
	"fmt"
	"io/fs"
	"net/url"
	"strings"
)

// address is where a store's URL points.
type address struct {
	scheme, bucket string
	prefix         string // empty, or ends in a slash
	query          url.Values
	endpoint       string // of an S3 store that is not AWS
}

// Is reports whether a name that a user gave is one that [Open] understands.
func Is(name string) bool {
	return strings.HasPrefix(name, "s3://") || strings.HasPrefix(name, "gs://")
}

// parse takes a URL apart. Its errors repeat nothing of it that could be a secret.
func parse(text string) (address, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme != "s3" && scheme != "gs" {
		if strings.ContainsAny(scheme, ":@/?") { // more than a scheme, of which a part may be a secret
			return address{}, fmt.Errorf("open store: address does not begin with a scheme, want s3:// or gs://")
		}
		return address{}, fmt.Errorf("open store: scheme is %q, want s3:// or gs://", scheme)
	}
	// Not url.Parse: in a key ?, # and % are letters like others, and its errors
	// repeat the whole URL. Only the last ? begins a query.
	a := address{scheme: scheme, query: url.Values{}}
	if i := strings.LastIndexByte(rest, '?'); i >= 0 {
		query, err := url.ParseQuery(rest[i+1:])
		if err != nil {
			return address{}, fmt.Errorf("open store: the query after ? cannot be read, want name=value&name=value")
		}
		a.query, rest = query, rest[:i]
	}
	a.bucket, a.prefix, _ = strings.Cut(rest, "/")
	if strings.ContainsRune(a.bucket, '@') {
		return address{}, fmt.Errorf("open store: credentials in a URL end up in logs, want them in the environment or a configuration file")
	}
	if a.bucket == "" || strings.ContainsAny(a.bucket, `:\ #%?`) {
		return address{}, fmt.Errorf("open store: bucket is %q, want %s://bucket/prefix", a.bucket, scheme)
	}
	if a.prefix = strings.Trim(a.prefix, "/"); a.prefix != "" {
		if !fs.ValidPath(a.prefix) || a.prefix == "." {
			return address{}, fmt.Errorf("open %s://%s: prefix has an empty, . or .. element, or no valid UTF-8, want none", scheme, a.bucket)
		}
		a.prefix += "/"
	}
	return a, nil
}

func (a address) of(key string) string { return a.scheme + "://" + a.bucket + "/" + key }

// String is the URL without its query.
func (a address) String() string { return strings.TrimSuffix(a.of(a.prefix), "/") }

// sameStore reports whether one store can copy from the other by itself.
func (a address) sameStore(b address) bool { return a.scheme == b.scheme && a.endpoint == b.endpoint }
