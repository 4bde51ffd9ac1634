package objstore_test

import (
	"io/fs"
	"strings"
	"testing"

	"hsx/internal/objstore"
)

// FuzzParse: what a URL is taken for is safe to put before a name, says the same when
// it is printed and read again, and no error repeats what comes before an @.
func FuzzParse(f *testing.F) {
	for _, url := range []string{"s3://bucket/a/b?region=x", "gs://bucket", "s3://", "s3://id:SECRET@bucket/a", "s3://b/../c", "s3://b/a?b?c=%zz",
		"sc:/id:SECRET@bucket/a", "id:SECRET@x://bucket", "s3://b/id:SECRET@//c", "s3://??"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		scheme, bucket, prefix, err := objstore.Parse(url)
		if err != nil {
			if strings.Contains(url, ":SECRET@") && strings.Contains(err.Error(), "SECRET") {
				t.Errorf("error %q shows a secret", err)
			}
			return
		}
		name := strings.TrimSuffix(prefix, "/")
		if bucket == "" || strings.ContainsAny(bucket, "@/?") || prefix != "" && (!fs.ValidPath(name) || name == prefix) {
			t.Fatalf("%q: bucket %q, prefix %q", url, bucket, prefix)
		}
		again, b, p, err := objstore.Parse(scheme + "://" + bucket + "/" + prefix + "?")
		if err != nil || again != scheme || b != bucket || p != prefix {
			t.Errorf("%q: %q %q became %q %q, error %v", url, bucket, prefix, b, p, err)
		}
	})
}
