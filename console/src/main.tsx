import "./styles.css";
import "./app/i18n";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { onAct, onSignedOut } from "./api/client";
import { queries } from "./api/query";
import { type Ending, ending, forget, onIdle } from "./app/idle";
import { Notices } from "./app/notices";
import { router } from "./app/router";
import { wayBack } from "./app/search";
import { me, signOut } from "./app/session";
import { signAct } from "./app/sign";
import { followOtherTabs } from "./app/theme";

/** To the sign-in, with a way back to where the person was. */
function leave(why: Ending) {
  forget();
  const { pathname, href } = router.state.location;
  if (pathname === "/sign-in") return;
  void router.navigate({ to: "/sign-in", search: { next: href, why } }).then(() => queries.clear());
}

followOtherTabs();
onAct(signAct);
onSignedOut(() => leave(ending()));
onIdle({
  touch: () => void queries.fetchQuery({ ...me, staleTime: 0 }).catch(() => {}),
  end: (why) => {
    // Whether it reaches the server or not: an unused session ends there by itself.
    if (why === "idle") void signOut().catch(() => {});
    leave(why);
  },
  begun: () => {
    if (router.state.location.pathname === "/sign-in")
      router.history.push(wayBack(router.state.location.search.next));
    else void queries.resetQueries();
  },
});

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queries}>
        <RouterProvider router={router} />
        <Notices />
      </QueryClientProvider>
    </StrictMode>,
  );
}
