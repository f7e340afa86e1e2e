// Reads the headers of a directory with the safetensors reader of @huggingface/hub:
// safetensors_reader.mjs DIR [FILE]; prints {tensor: {dtype, shape, bytes}} as JSON.
import { parseSafetensorsMetadata } from "@huggingface/hub";
import fs from "node:fs";
import path from "node:path";

const [dir, file] = process.argv.slice(2);
const hubUrl = "http://directory.invalid";
const prefix = /^\/acme\/model\/(resolve|raw)\/main\//;

// The hub's answers, from the directory: sizes and ranges of files.
async function fetchFile(url, { method = "GET", headers = {} } = {}) {
	const name = decodeURIComponent(new URL(url).pathname).replace(prefix, "");
	const full = path.join(dir, name);
	if (!fs.existsSync(full))
		return new Response(null, { status: 404, headers: { "X-Error-Code": "EntryNotFound" } });
	const size = fs.statSync(full).size;
	const range = /^bytes=(\d+)-(\d+)$/.exec(new Headers(headers).get("range") ?? "");
	const from = range ? Number(range[1]) : 0;
	const to = range ? Math.min(Number(range[2]), size - 1) : size - 1;
	const bytes = Buffer.alloc(method === "HEAD" ? 0 : to - from + 1);
	const fd = fs.openSync(full, "r");
	let at = 0;
	for (let n = 1; at < bytes.length && n > 0; at += n)
		n = fs.readSync(fd, bytes, at, bytes.length - at, from + at);
	fs.closeSync(fd);
	return new Response(method === "HEAD" ? null : bytes, {
		status: range ? 206 : 200,
		headers: { "Content-Range": `bytes ${from}-${to}/${size}`, "Content-Length": String(bytes.length), ETag: "x" },
	});
}

const found = await parseSafetensorsMetadata({ repo: "acme/model", path: file, hubUrl, fetch: fetchFile });
const tensors = {};
for (const header of found.sharded ? Object.values(found.headers) : [found.header]) {
	for (const [name, t] of Object.entries(header)) {
		if (name === "__metadata__") continue;
		if (name in tensors) throw new Error(`${name} is in two files`);
		tensors[name] = { dtype: t.dtype, shape: t.shape, bytes: t.data_offsets[1] - t.data_offsets[0] };
	}
}
console.log(JSON.stringify(tensors));
