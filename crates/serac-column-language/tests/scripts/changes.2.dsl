s=sum(u.t.b)
n=min(u.t.a)
print(s,n)
