// The page of a refusal code, as the server serves it.
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { Failure, Skeleton } from "@/ui/feedback";
import { Markdown } from "@/ui/markdown";

export function Explain() {
  const { code } = useParams({ from: "/frame/explain/$code" });
  const page = useQuery({
    queryKey: ["errors", code],
    queryFn: async () => {
      const answer = await fetch(`/errors/${encodeURIComponent(code)}`);
      if (!answer.ok) throw new Error(`${answer.status}`);
      return answer.text();
    },
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (page.isPending) return <Skeleton />;
  if (page.isError) return <Failure error={page.error} retry={() => void page.refetch()} />;
  // The server has these pages in English.
  return (
    <div lang="en">
      <Markdown text={page.data} />
    </div>
  );
}
