import "./styles.css";
import "./app/i18n";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { onSignedOut } from "./api/client";
import { queries } from "./api/query";
import { router } from "./app/router";

onSignedOut(() => {
  const { pathname, href } = router.state.location;
  if (pathname !== "/sign-in") void router.navigate({ to: "/sign-in", search: { next: href } });
});

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queries}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </StrictMode>,
  );
}
