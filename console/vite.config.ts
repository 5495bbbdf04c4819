import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const server = process.env.SERVER_URL ?? "http://127.0.0.1:7433";
const api = { target: server, changeOrigin: false };

export default defineConfig({
  plugins: [react(), tailwindcss()],
  resolve: { alias: { "@": fileURLToPath(new URL("./src", import.meta.url)) } },
  server: {
    port: 5173,
    // `make dev`: the page comes from Vite, everything else from a running server.
    proxy: { "/v1": api, "/errors": api, "/openapi.json": api, "/healthz": api, "/readyz": api },
  },
  build: {
    target: "es2022",
    // `prebuild` empties it: the .gitignore stays, so that the directory is always there.
    emptyOutDir: false,
    // Below this size Vite would write assets into the code as data: URLs, which the content security policy forbids.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
  },
  worker: { format: "es" },
});
